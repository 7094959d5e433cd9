import { type DeployedSource, withDeployed } from "./open/deployed-targets.ts";
import { type AddressesSource, withEndpoints } from "./open/endpoint-targets.ts";
import type { WithTargetsOptions } from "./open/open-services.ts";
import type { OpenTargets } from "./open/open-targets.ts";
import { type SimulatedSource, withSimulation } from "./open/simulated-targets.ts";

/** Source of the targets of a run: one environment, or addresses. */
export type TargetsSource = SimulatedSource | DeployedSource | AddressesSource;

/**
 * Opens the targets of a source, calls `use`, and closes them.
 *
 * @throws {UserError} one line, if they cannot be reached.
 */
export async function withTargets<Result>(
  source: TargetsSource,
  options: WithTargetsOptions,
  use: (open: OpenTargets) => Promise<Result>,
): Promise<Result> {
  switch (source.kind) {
    case "simulated":
      return withSimulation(source, options, use);
    case "deployed":
      return withDeployed(source, options, use);
    case "addresses":
      return withEndpoints(source, options, use);
  }
}
