import {
  type ServiceContainer,
  serviceContainers,
  visibleGpus,
} from "../facts/service-containers.ts";
import { at, number, text } from "../facts/values.ts";
import { environmentOf, releasesOf } from "../facts/workloads.ts";
import type { StackChange } from "../input/change.ts";
import { each, type ReviewRule, rule } from "./rule.ts";

function mayHaveGpus({ values, env }: ServiceContainer): boolean {
  const isNamed = env.has("NVIDIA_VISIBLE_DEVICES") && env.get("NVIDIA_VISIBLE_DEVICES") !== "";
  return isNamed || Boolean(values.gpus) || values.runtime === "nvidia";
}

/** GPUs requested by services on a host; `undefined` if unknown. */
function gpusUsed(change: StackChange): ReadonlySet<string> | undefined {
  const used = new Set<string>();
  for (const container of serviceContainers(change)) {
    const isNamed = container.env.get("NVIDIA_VISIBLE_DEVICES") !== undefined;
    if (!isNamed && mayHaveGpus(container)) return undefined;
    for (const gpu of visibleGpus(change, container)) used.add(gpu);
  }
  // it is unknown on which GPU a MIG device is
  if ([...used].some((gpu) => gpu.startsWith("MIG-"))) return undefined;
  return used.size === 0 ? undefined : used;
}

/** GPUs requested by containers and pods. */
export const gpuRules: readonly ReviewRule[] = [
  rule({
    id: "gpu-on-host",
    severity: "error",
    fix: "correct the list of gpus of the service, or host.count",
    *find(change) {
      const count = environmentOf(change)?.gpu?.count;
      if (count === undefined) return;
      for (const { address, values, env } of serviceContainers(change)) {
        const devices = [
          (text(values.gpus) ?? "").replace(/^device=/, ""),
          env.get("NVIDIA_VISIBLE_DEVICES") ?? "",
        ].flatMap((names) => names.split(","));
        const absent = new Set(devices.filter((it) => /^\d+$/.test(it) && Number(it) >= count));
        for (const device of absent) {
          yield {
            address,
            message: `gpus must be 0 to ${count - 1} because the host has ${count}, got ${device}`,
          };
        }
      }
    },
  }),
  rule({
    id: "gpu-request-agrees",
    severity: "error",
    fix: "set both to the same GPUs, as in constructs/docker/gpu-request.ts",
    find: each(serviceContainers, ({ values, env }) => {
      const gpus = text(values.gpus)?.replace(/^device=/, "") ?? "";
      const visible = env.get("NVIDIA_VISIBLE_DEVICES");
      return gpus === "" || visible === undefined || gpus === visible
        ? undefined
        : `NVIDIA_VISIBLE_DEVICES must equal gpus ('${gpus}'), got '${visible}'`;
    }),
  }),
  rule({
    id: "gpu-identifiers-mixed",
    severity: "error",
    fix: "use either indices or UUIDs in gpus of all services; 'nvidia-smi -L' prints the UUIDs",
    *find(change) {
      const named = serviceContainers(change).flatMap(({ address, env }) =>
        (env.get("NVIDIA_VISIBLE_DEVICES") ?? "")
          .split(",")
          .filter((device) => /^(\d+|(GPU|MIG)-.*)$/.test(device))
          .map((device) => ({ address, device })),
      );
      const index = named.find(({ device }) => /^\d/.test(device));
      const uuid = named.find(({ device }) => !/^\d/.test(device));
      if (index === undefined || uuid === undefined) return;
      yield {
        address: uuid.address,
        message: `gpus must be named all by index or all by UUID, got ${index.device} (${index.address}) and ${uuid.device}`,
      };
    },
  }),
  rule({
    id: "gpu-unused",
    severity: "warning",
    fix: "assign the GPUs to a service (gpus), lower host.count, or set accelerator to cpu",
    *find(change) {
      const gpu = environmentOf(change)?.gpu;
      if (gpu === undefined) return;
      const hosts = serviceContainers(change);
      const charts = releasesOf(change);
      const isRequested =
        hosts.some(mayHaveGpus) ||
        charts.some(
          ({ values }) =>
            (number(at(values, "triton", "gpus")) ?? 0) > 0 ||
            at(values, "embed", "accelerator") === "gpu",
        );
      if (isRequested || hosts.length + charts.length === 0) {
        const idle = gpu.count - (gpusUsed(change)?.size ?? gpu.count);
        if (idle <= 0) return;
        const are = idle === 1 ? "is" : "are";
        yield {
          message: `${idle} of ${gpu.count} GPUs (${gpu.name}) ${are} paid for but not used by any service`,
        };
        return;
      }
      const address = [...hosts, ...charts.map(({ resource }) => resource)][0]?.address ?? "";
      yield {
        address,
        message: `${gpu.count} GPUs (${gpu.name}) are paid for but not used by any service`,
      };
    },
  }),
];
