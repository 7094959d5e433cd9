import { findingIf } from "../../constructs/checks/findings.ts";
import { networkName } from "./docker-settings.ts";
import type { EnvironmentSettings } from "./settings.ts";

/** Name that a setting gives to something on a Docker endpoint or in a cluster. */
interface Claim {
  readonly setting: string;
  readonly value: string;
  /** Docker endpoint or cluster on which the value must be unique. */
  readonly where: string;
}

/**
 * Names that two environments must not share. All other names of containers, volumes and images begin with the
 * environment's name.
 */
function claimOf({ name, ...environment }: EnvironmentSettings): Claim {
  switch (environment.stack) {
    case "single-gpu":
    case "multi-gpu": {
      const { host, network } = environment.settings;
      return { setting: "network", value: networkName(name, network), where: host.docker };
    }
    case "kind":
      return {
        setting: "cluster.name",
        value: environment.settings.cluster.name,
        where: "this machine",
      };
    case "kubernetes":
    case "bulk": {
      const { cluster, namespace } = environment.settings;
      return { setting: "namespace", value: namespace, where: cluster.context };
    }
  }
}

/** Findings about names that `environment` shares with one of `environments`. */
export function sharedNameFindings(
  environment: EnvironmentSettings,
  environments: readonly EnvironmentSettings[],
): readonly string[] {
  const { setting, value, where } = claimOf(environment);
  const others = environments
    .filter((other) => other.name !== environment.name)
    .filter((other) => {
      const claim = claimOf(other);
      return claim.setting === setting && claim.value === value && claim.where === where;
    })
    .map(({ name }) => name);
  return findingIf(
    others.length > 0,
    setting,
    `be unique on ${where}`,
    `'${value}', as in ${others.join(", ")}`,
  );
}
