import { readArtefact } from "../../artefact/artefact.ts";
import { workloadsBehind } from "../../artefact/simulated-process.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import { UserError } from "../../contract/user-error.ts";
import { projectFolder } from "../../model-tools/files/folders.ts";
import { readSamples } from "../../target/reference/reference.ts";
import type {
  DeployedEnvironment,
  NetworkAccess,
} from "../../target/service/deployed-environment.ts";
import type { DrillRecord } from "../../verify/drills/drill-record.ts";
import {
  type HostDrill,
  type HostDrillOptions,
  HostRun,
  type HostService,
  type HostTarget,
} from "../../verify/drills/host-run.ts";
import { runDrill } from "../../verify/drills/run-drill.ts";
import { inspectContainers } from "../host/deployment.ts";
import { Docker } from "../host/docker-command.ts";

/** Timeout of a command of the engine: a restart waits for the grace period of the container. */
const commandMs = 180_000;

/**
 * Returns an environment on a Docker host as target of a drill.
 *
 * @param name - Service to disturb; absent: the first Triton server behind the gateway, or the embed server.
 */
export function hostTarget(
  { deployed, state, file, displayPath }: DeployedEnvironment,
  access: NetworkAccess,
  name: string | undefined,
): HostTarget {
  const services = deployed.services.flatMap((service): HostService[] => {
    const container = state.names.get(service.resources.container ?? "");
    return container === undefined ? [] : [{ name: service.name, container }];
  });
  const named = (wanted: string | undefined) => services.find((it) => it.name === wanted);
  const embed = deployed.services.find(({ kind }) => kind === "embed");
  const entry = named(embed?.name);
  const endpoint = embed?.endpoints.find((it) => it.name === "embed-http");
  if (entry === undefined || endpoint === undefined) {
    throw new UserError(
      `${deployed.name}: must have an embed server in a container, because drills send images to it`,
    );
  }
  const { workloads } = readArtefact(file, displayPath);
  const gateway = workloads.find(({ service }) => service.name === entry.name);
  const behind = gateway === undefined ? [] : workloadsBehind(gateway, workloads);
  const disturbed = named(name ?? behind[0]?.service.name ?? entry.name);
  if (disturbed === undefined) {
    throw new UserError(
      `--service must be one of ${services.map((it) => it.name).join(", ")}, the services of ${deployed.name} on this host, got '${name}'`,
    );
  }
  const docker = new Docker(deployed.where);
  return {
    environment: deployed.name,
    endpoint: deployed.where,
    services,
    entry,
    disturbed,
    url: access.url(endpoint.url),
    queueSize: serverEnv.shape.MAX_QUEUE_SIZE.parse(gateway?.env.MAX_QUEUE_SIZE),
    // without a signal, because an interruption must not abort the commands that restore the environment
    docker: (...args) => docker.runWith({ timeoutMs: commandMs }, ...args),
    inspect: (containers) => inspectContainers(deployed.where, containers),
  };
}

/**
 * Runs a drill on an environment with the project's sample images, and restores the environment.
 *
 * @throws {Interrupted} on SIGINT and SIGTERM.
 */
export function drillHost(
  drill: HostDrill,
  options: Omit<HostDrillOptions, "images" | "repository" | "concurrency">,
): Promise<DrillRecord> {
  const complete = {
    ...options,
    // the excess clients retry after 100 ms: many would only load this machine
    concurrency: Math.ceil(1.25 * options.target.queueSize),
    repository: projectFolder,
    images: readSamples(),
  };
  return runDrill(drill, complete, () => HostRun.open(complete));
}
