import type { StackChange } from "../input/change.ts";
import { chartValuesPath, containerPath, tritonOnnx } from "./example-paths.ts";
import { environmentOf, releasesOf } from "./facts.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import { type ServiceContainer, serviceContainers, visibleGpus } from "./service-containers.ts";
import { at, number, text } from "./values.ts";

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
    title: "Requested GPUs exist on the host.",
    rationale:
      "Docker cannot start a container that requests a nonexistent GPU, and the old container has already been removed.",
    inputs:
      "`gpus` and `NVIDIA_VISIBLE_DEVICES` of every container, compared with the number of GPUs in the output `environment`.",
    fix: "correct the list of gpus of the service, or host.count",
    example: {
      stack: "single-gpu",
      message: "gpus must be 0 to 0 because the host has 1, got 3",
      edits: [
        { path: containerPath(tritonOnnx, "gpus"), failing: "device=3", passing: "device=0" },
      ],
    },
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
    title: "Both GPU settings of a container agree.",
    rationale:
      "Docker assigns the GPUs in `gpus`, NVIDIA's runtime those in its variable. If they differ, one GPU serves two services and another none.",
    inputs: "`gpus` and `NVIDIA_VISIBLE_DEVICES` of every container that has both.",
    fix: "set both to the same GPUs, as in constructs/docker/gpu-request.ts",
    example: {
      stack: "multi-gpu-4x",
      message: "NVIDIA_VISIBLE_DEVICES must equal gpus ('0'), got '1'",
      settings: "topology: per-gpu",
      edits: [
        {
          path: containerPath("triton-1/container", "gpus"),
          failing: "device=0",
          passing: "device=1",
        },
      ],
    },
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
    title: "All GPUs are named by index, or all by UUID.",
    rationale:
      "If both are used, it is unknown whether two services share a GPU and how much of its memory they need together.",
    inputs: "`NVIDIA_VISIBLE_DEVICES` of all containers of the stack.",
    fix: "use either indices or UUIDs in gpus of all services; 'nvidia-smi -L' prints the UUIDs",
    example: {
      stack: "single-gpu",
      message:
        "gpus must be named all by index or all by UUID, got 0 (docker_container.embed_container_3CD7E964) and GPU-8a56a4bc-184b-a047-2620-be16fdbd5b46",
      edits: [
        {
          path: containerPath(tritonOnnx, "env", 2),
          failing: "NVIDIA_VISIBLE_DEVICES=GPU-8a56a4bc-184b-a047-2620-be16fdbd5b46",
          passing: "NVIDIA_VISIBLE_DEVICES=0",
        },
      ],
    },
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
    title: "All GPUs of an environment are used.",
    rationale: "Unused GPUs cost the same as used ones.",
    inputs:
      "`gpus`, the runtime and `NVIDIA_VISIBLE_DEVICES` of containers, and `triton.gpus` and `embed.accelerator` in the chart values, if the output `environment` has GPUs. In a cluster, other workloads may use the remaining GPUs; on a host, nothing does.",
    fix: "assign the GPUs to a service (gpus), lower host.count, or set accelerator to cpu",
    example: {
      stack: "k8s-gpu",
      message: "4 GPUs (l4) are paid for but not used by any service",
      edits: [
        {
          path: chartValuesPath,
          failingText: '"gpus": 0',
          passingText: '"gpus": 1',
        },
      ],
    },
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
