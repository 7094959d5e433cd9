import { readEnvironment } from "../../artefact/artefact.ts";
import type { Environment } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import type {
  DeployedEnvironment,
  NetworkAccess,
} from "../../target/service/deployed-environment.ts";
import { requireKeys } from "../../verify/verify-deployed.ts";
import { type Deployment, inspectContainers, readDeployment } from "../host/deployment.ts";
import { runInContainer } from "../host/gpu-reader.ts";
import { openTunnel, planTunnel, TunnelError, throughTunnel } from "../host/ssh-tunnel.ts";
import type { SynthesizedFile } from "../shared/artefact.ts";
import { accessOf, inspectCluster, isDeployedInCluster, reachCluster } from "./deployed-cluster.ts";

export const apiKeyVariable = "INFERENCE_API_KEY";

export interface DeployedOptions {
  /** Added to the local ports of a tunnel. */
  readonly portOffset: number;
  readonly signal: AbortSignal;
  readonly onNotice: (line: string) => void;
}

/**
 * Finds the deployed environments.
 *
 * @param names - Names on the command line; empty: all environments.
 */
export async function deployedEnvironments(
  names: readonly string[],
  files: readonly SynthesizedFile[],
  options: DeployedOptions,
): Promise<readonly DeployedEnvironment[]> {
  const found: DeployedEnvironment[] = [];
  const missing: string[] = [];
  for (const file of files) {
    const { name } = file;
    const fromTerraform = await readDeployment(name, file, options.signal);
    const deployment = fromTerraform ?? (await appliedEnvironment(file, names.length > 0, options));
    if (deployment === undefined) {
      missing.push(name);
      continue;
    }
    const { environment: deployed, state } = deployment;
    const apiKey = process.env[apiKeyVariable]?.trim() || undefined;
    requireKeys(deployed, apiKey, apiKeyVariable);
    found.push({
      ...file,
      deployed,
      state,
      apiKey,
      appliedOutsideTerraform: fromTerraform === undefined,
      inspect: (containers) => inspectContainers(deployed.where, containers, options.signal),
      runInContainer: (container, command) =>
        runInContainer(deployed, container, command, options.signal),
      inspectObjects: (objects) => inspectCluster(accessOf(deployed), objects, options.signal),
      openAccess: () =>
        deployed.namespace === undefined
          ? reachOf(deployed, options)
          : reachCluster(deployed, options.signal),
    });
  }
  const notDeployed = (name: string) =>
    `${name} is not deployed from this checkout: 'npx cdktf deploy ${name}' deploys it`;
  if (missing.length > 0 && (names.length > 0 || found.length === 0)) {
    throw new UserError(missing.map(notDeployed).join("\n"));
  }
  for (const name of missing) options.onNotice(notDeployed(name));
  return found;
}

/** Returns an environment whose objects were applied to its cluster without Terraform. */
async function appliedEnvironment(
  file: SynthesizedFile,
  isNamed: boolean,
  { signal, onNotice }: DeployedOptions,
): Promise<Deployment | undefined> {
  const environment = readEnvironment(file.file, file.displayPath);
  if (environment.namespace === undefined) return undefined;
  try {
    if (!(await isDeployedInCluster(environment, signal))) return undefined;
  } catch (error) {
    // an unreachable cluster is an error only for a named environment
    if (isNamed || !(error instanceof UserError)) throw error;
    return undefined;
  }
  onNotice(
    `${file.name}: no Terraform state; comparing its objects in ${environment.where} with the synthesized file`,
  );
  return { environment, state: { ids: new Map(), names: new Map() } };
}

/** Reaches the endpoints directly, or through a tunnel if they are on the loopback interface of the host. */
export async function reachOf(
  deployed: Environment,
  options: DeployedOptions,
): Promise<NetworkAccess> {
  const plan = planTunnel(deployed, options.portOffset);
  if (plan === undefined) {
    if (options.portOffset !== 0) {
      options.onNotice(
        `${deployed.name}: --port-offset has no effect, because no tunnel is needed`,
      );
    }
    return { url: (url) => url, notes: [], close: async () => {} };
  }
  try {
    const tunnel = await openTunnel(plan, options.signal);
    return {
      url: (url) => throughTunnel(url, plan),
      notes: [`reached through an ssh tunnel to ${plan.target.text}`],
      close: () => tunnel.close(),
    };
  } catch (error) {
    if (!(error instanceof TunnelError)) throw error;
    throw new UserError(`${deployed.name}: ${error.message}`);
  }
}
