import { type AddressesSource, openAddresses } from "./open/addresses.ts";
import { type DeployedSource, openDeployment } from "./open/deployment.ts";
import type { OpenOptions } from "./open/open-services.ts";
import type { OpenTarget } from "./open/open-target.ts";
import { openServer, type ServerSource } from "./open/server.ts";
import { openSimulation, type SimulatedSource } from "./open/simulation.ts";

/** Where requests go: an environment, simulated or deployed, addresses, or any embedding server. */
export type TargetSource = SimulatedSource | DeployedSource | AddressesSource | ServerSource;

/** Opens a target; its owner closes it. */
export function openTarget(source: TargetSource, options: OpenOptions): Promise<OpenTarget> {
  switch (source.kind) {
    case "simulated":
      return openSimulation(source, options);
    case "deployed":
      return openDeployment(source, options);
    case "addresses":
      return openAddresses(source, options);
    case "server":
      return openServer(source, options);
  }
}
