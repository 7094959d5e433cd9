import type { Artefact } from "../../artefact/artefact.ts";
import type { ContainerBlock } from "../../artefact/container-workload.ts";
import type { Workload } from "../../artefact/workload.ts";
import { parseTritonArgs } from "../../contract/triton-flags.ts";
import { UserError } from "../../contract/user-error.ts";
import { servicePorts } from "./service-ports.ts";

/** Containers of an environment that can run as one container of the all-in-one image. */
export function requireOneContainer({
  environment: { name, gpu },
  workloads,
  containers,
}: Artefact): ReadonlyMap<Workload, ContainerBlock> {
  const rejected = (reason: string) =>
    new UserError(
      `${name} cannot be one container: ${reason}; launch-spec requires an environment of the stack single-gpu`,
    );
  const found = new Map<Workload, ContainerBlock>();
  for (const workload of workloads) {
    const { service, kind, address } = workload;
    if (kind === "deployment") throw rejected(`${service.name} is a Deployment of a cluster`);
    if (gpu !== undefined && gpu.count > 1)
      throw rejected(`it runs on ${gpu.count} GPUs of one host`);
    if (servicePorts[service.name] === undefined) {
      throw rejected(
        `the all-in-one image has no ${service.name}, only ${Object.keys(servicePorts).join(", ")}`,
      );
    }
    if (workload.env.TLS_CERT_FILE !== undefined || workload.env.API_KEYS_FILE !== undefined) {
      throw rejected(`${service.name} has files of a host (embed.tls, embed.keys)`);
    }
    if (service.endpoints.some(({ url }) => url.startsWith("https:"))) {
      throw rejected(`${service.name} is behind the proxy of embed.tls.acme`);
    }
    const block = containers.find((it) => it.address === address);
    if (block !== undefined) found.set(workload, block);
  }
  const requests = new Set([...found.values()].map((it) => it.declared.gpus ?? "none"));
  requests.delete("none");
  if (requests.size > 1)
    throw rejected(`its services use different GPUs (${[...requests].join(", ")})`);
  return found;
}

/** Value that all Triton servers share, because the image has one Triton configuration. */
export function sharedValue<T extends string>(
  environment: string,
  tritons: readonly Workload[],
  setting: string,
  of: (workload: Workload) => T | undefined,
): T | undefined {
  const values = new Set(tritons.map(of).filter((value) => value !== undefined));
  if (values.size <= 1) return [...values][0];
  throw new UserError(
    `${environment} cannot be one container: its Triton servers have different settings (${setting}: ${[...values].join(", ")}), and the all-in-one image has one Triton server`,
  );
}

/** Models that a Triton server loads at start. */
export function loadedModels({ command }: Workload): readonly string[] {
  return command.length === 0 ? [] : parseTritonArgs(command.slice(1))["load-model"];
}
