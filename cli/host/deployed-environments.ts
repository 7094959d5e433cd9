import { readEnvironment } from "../../artefact/artefact.ts";
import type { DeployedEnvironment, Reach } from "../../bench/run/deployed-environment.ts";
import type { Environment } from "../../contract/environment.ts";
import { UserError } from "../../contract/user-error.ts";
import { requireKeys } from "../../verify/verify-deployed.ts";
import type { ArtefactFile } from "../artefact.ts";
import {
  accessOf,
  inspectCluster,
  isInCluster,
  reachCluster,
} from "../cluster/deployed-cluster.ts";
import { type Deployment, inspectContainers, readDeployment } from "./deployment.ts";
import { openTunnel, planTunnel, TunnelError, throughTunnel } from "./ssh-tunnel.ts";

/** Where the client has the key of an embed server that strangers can reach. */
const apiKeyVariable = "INFERENCE_API_KEY";

export interface DeployedOptions {
  /** Added to the local ports of a tunnel. */
  readonly portOffset: number;
  readonly signal: AbortSignal;
  readonly onNotice: (line: string) => void;
}

/**
 * The environments that are deployed, of those asked for by name, or of all.
 *
 * @throws {UserError} when one that was named is not deployed, when none is, and what keeps it from being reached.
 */
export async function deployedEnvironments(
  asked: readonly string[],
  files: readonly ArtefactFile[],
  options: DeployedOptions,
): Promise<readonly DeployedEnvironment[]> {
  const found: DeployedEnvironment[] = [];
  const missing: string[] = [];
  for (const file of files) {
    const { name } = file;
    const ofTerraform = await readDeployment(name, file, options.signal);
    const deployment = ofTerraform ?? (await appliedEnvironment(file, asked.length > 0, options));
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
      isApplied: ofTerraform === undefined,
      inspect: (names) => inspectContainers(deployed.where, names, options.signal),
      inspectObjects: (objects) => inspectCluster(accessOf(deployed), objects, options.signal),
      reach: () =>
        deployed.namespace === undefined
          ? reachOf(deployed, options)
          : reachCluster(deployed, options.signal),
    });
  }
  const nothing = (name: string) =>
    `${name} is not deployed from here: npx cdktf deploy ${name} --auto-approve`;
  if (missing.length > 0 && (asked.length > 0 || found.length === 0)) {
    throw new UserError(missing.map(nothing).join("\n"));
  }
  for (const name of missing) options.onNotice(nothing(name));
  return found;
}

/** An environment whose objects are in its cluster, though no Terraform of this folder has put them there. */
async function appliedEnvironment(
  file: ArtefactFile,
  isAsked: boolean,
  { signal, onNotice }: DeployedOptions,
): Promise<Deployment | undefined> {
  const environment = readEnvironment(file.file, file.shown);
  if (environment.namespace === undefined) return undefined;
  try {
    if (!(await isInCluster(environment, signal))) return undefined;
  } catch (error) {
    // nobody who asks for all environments means one that cannot be reached
    if (isAsked || !(error instanceof UserError)) throw error;
    return undefined;
  }
  onNotice(
    `${file.name}: Terraform has no state of it here; its objects are in ${environment.where}, and are compared with the synthesized file`,
  );
  return { environment, state: { ids: new Map(), names: new Map() } };
}

/** Endpoints as they are, or through a tunnel where only the host itself reaches them. */
async function reachOf(deployed: Environment, options: DeployedOptions): Promise<Reach> {
  const plan = planTunnel(deployed, options.portOffset);
  if (plan === undefined) {
    if (options.portOffset !== 0) {
      options.onNotice(
        `${deployed.name}: --port-offset moves the ports of a tunnel, and it needs none`,
      );
    }
    return { url: (url) => url, notes: [], close: async () => {} };
  }
  try {
    const tunnel = await openTunnel(plan, options.signal);
    return {
      url: (url) => throughTunnel(url, plan),
      notes: [`reached through an ssh tunnel to ${plan.target.shown}`],
      close: () => tunnel.close(),
    };
  } catch (error) {
    if (!(error instanceof TunnelError)) throw error;
    throw new UserError(`${deployed.name}: ${error.message}`);
  }
}
