import type { HostRequirements } from "../../constructs/docker/host-requirements.ts";
import { type HostVerdict, merged, noFindings, note, problem } from "../shared/host-verdict.ts";
import type { Problem } from "../shared/problem.ts";
import { type HostFacts, isUnknown } from "./host-facts.ts";
import type { Gpu } from "./host-parse.ts";

type GpuNeeds = NonNullable<HostRequirements["gpu"]>;
type GpuUse = GpuNeeds["uses"][number];
type GpuId = GpuUse["gpus"][number];

const installToolkit =
  "install NVIDIA Container Toolkit on the host, then 'sudo nvidia-ctk runtime configure --runtime=docker' and 'sudo systemctl restart docker'";

/** Compares the GPUs, the driver and the container runtime of a host with the requirements. */
export function judgeNvidia(
  needs: GpuNeeds,
  { engine, nvidia }: HostFacts,
  deployed: boolean,
): HostVerdict {
  return merged(
    judgeRuntime(needs, engine, nvidia?.hook ?? { unknown: "" }),
    judgeInstalled(needs, nvidia?.gpus ?? { unknown: "nvidia-smi was not run" }, deployed),
  );
}

function judgeInstalled(
  needs: GpuNeeds,
  gpus: NonNullable<HostFacts["nvidia"]>["gpus"],
  deployed: boolean,
): HostVerdict {
  if (gpus === "no-driver") {
    return problem({
      code: "nvidia-driver",
      message: "the NVIDIA driver must be installed on the host, but nvidia-smi is missing",
      fix: "install the driver and reboot the host, or set accelerator: cpu",
    });
  }
  if ("failed" in gpus && /is not a valid field to query/.test(gpus.failed)) {
    const { branch = 510, image = "" } = highestDriver(needs) ?? {};
    return problem({
      code: "nvidia-driver",
      // nvidia-smi reports the compute capability from branch 510 on
      message: `the NVIDIA driver must be ${branch} or newer${image && ` for ${image}`}, got one before 510: nvidia-smi fails with '${gpus.failed}'`,
      fix: "upgrade the driver of the host",
    });
  }
  if ("failed" in gpus) {
    return problem({
      code: "nvidia-driver",
      message: `nvidia-smi must work on the host, but fails: ${gpus.failed}`,
      fix: "reboot the host if the driver was updated, or reinstall the driver",
    });
  }
  return isUnknown(gpus)
    ? note(`GPUs were not checked: ${gpus.unknown}`)
    : judgeGpus(needs, gpus, deployed);
}

/** Checks GPU support of Docker. A single GPU is requested with `gpus` (hook or CDI), several with the runtime `nvidia`. */
function judgeRuntime(
  { uses }: GpuNeeds,
  engine: HostFacts["engine"],
  hook: NonNullable<HostFacts["nvidia"]>["hook"],
): HostVerdict {
  if (engine.runtimes.includes("nvidia")) return noFindings;
  const several = uses.find(({ gpus }) => gpus.length > 1);
  if (several !== undefined) {
    return problem({
      code: "nvidia-runtime",
      message: `Docker must have the runtime 'nvidia' for the ${several.gpus.length} GPUs of ${several.service}, got ${engine.runtimes.join(", ")}`,
      fix: installToolkit,
    });
  }
  if (hook === true || engine.cdiDevices.some((id) => id.startsWith("nvidia.com/gpu="))) {
    return noFindings;
  }
  if (isUnknown(hook)) {
    return note("Docker has no runtime 'nvidia'; other GPU support was not checked");
  }
  return problem({
    code: "nvidia-runtime",
    message:
      "Docker must support GPUs, but has neither the runtime 'nvidia' nor NVIDIA's hook or CDI devices",
    fix: installToolkit,
  });
}

/** Minimum memory of a GPU, as a fraction of the catalogue's value. ECC and some drivers reduce it by up to a sixteenth. */
const vramTolerance = 0.93;

function judgeGpus(needs: GpuNeeds, gpus: readonly Gpu[], deployed: boolean): HostVerdict {
  const usesOf = new Map<GpuId, GpuUse[]>();
  for (const use of needs.uses) {
    for (const id of use.gpus) usesOf.set(id, [...(usesOf.get(id) ?? []), use]);
  }
  return merged(
    gpus.length >= needs.count
      ? noFindings
      : problem({
          code: "gpu-count",
          message: `the host must have ${needs.count} GPUs (host.count), got ${gpus.length}`,
          fix:
            gpus.length === 0
              ? "use a host with GPUs, or set accelerator: cpu"
              : `set host.count to ${gpus.length} and use only these GPUs, or use a host with ${needs.count}`,
        }),
    ...[...usesOf].map(([id, uses]) => {
      const gpu = gpus.find((it) => (typeof id === "number" ? it.index : it.uuid) === id);
      return gpu === undefined || isMig(id)
        ? judgeAbsentGpu(needs, gpus, id, uses)
        : judgeGpu(needs, gpu, labelOf(id), uses, deployed);
    }),
    judgeDriver(needs, gpus),
  );
}

const labelOf = (id: GpuId) => (typeof id === "number" ? `GPU ${id}` : id);
const isMig = (id: GpuId) => typeof id === "string" && id.startsWith("MIG-");
const usersOf = (uses: readonly GpuUse[]) => uses.map(({ service }) => service).join(" and ");

function judgeAbsentGpu(
  needs: GpuNeeds,
  gpus: readonly Gpu[],
  id: GpuId,
  uses: readonly GpuUse[],
): HostVerdict {
  if (isMig(id)) {
    return note(
      `${id} of ${usersOf(uses)} was not checked: 'nvidia-smi -L' on the host lists MIG devices`,
    );
  }
  // already reported as too few GPUs
  if (typeof id === "number" && id < needs.count && gpus.length < needs.count) return noFindings;
  const ids = gpus.map((it) => (typeof id === "number" ? it.index : it.uuid)).join(", ");
  const count = `${gpus.length} ${gpus.length === 1 ? "GPU" : "GPUs"}`;
  return problem({
    code: "gpu-missing",
    message: `${labelOf(id)} of ${usersOf(uses)} must exist on the host, got ${count}${gpus.length === 0 ? "" : `: ${ids}`}`,
    fix: "use GPUs that 'nvidia-smi -L' lists on the host",
  });
}

function judgeGpu(
  needs: GpuNeeds,
  gpu: Gpu,
  label: string,
  uses: readonly GpuUse[],
  deployed: boolean,
): HostVerdict {
  if (gpu.failure !== undefined) {
    return problem({
      code: "nvidia-driver",
      message: `${label} (${gpu.name}) of ${usersOf(uses)} must report its memory, but nvidia-smi prints '${gpu.failure}'`,
      fix: `reset it ('sudo nvidia-smi --gpu-reset -i ${gpu.index}'), reboot the host, or use another GPU`,
    });
  }
  if (gpu.mig === "enabled") {
    return problem({
      code: "gpu-kind",
      message: `${label} (${gpu.name}) of ${usersOf(uses)} must be a whole GPU, but its MIG mode is enabled`,
      fix: `set gpus to UUIDs of its MIG devices ('nvidia-smi -L') and host.migProfile, or disable the mode: 'sudo nvidia-smi -i ${gpu.index} -mig 0'`,
    });
  }
  const problems: Problem[] = [];
  if (gpu.memoryMiB < needs.vramMiB * vramTolerance) {
    problems.push({
      code: "gpu-memory",
      message: `${label} (${gpu.name}) must have the memory of ${needs.name} (host.gpu), ${needs.vramMiB} MiB, got ${gpu.memoryMiB} MiB`,
      fix: "set host.gpu to the model of the GPU",
    });
  }
  const needed = uses.reduce((sum, { miB }) => sum + miB, 0);
  if (!deployed && gpu.memoryMiB >= needed && gpu.freeMiB < needed) {
    problems.push({
      code: "gpu-memory",
      message: `${label} must have about ${needed} MiB free, got ${gpu.freeMiB} of ${gpu.memoryMiB} MiB (required: ${uses.map(({ service, miB }) => `${service} ${miB}`).join(" + ")})`,
      fix: "stop the processes that 'nvidia-smi' lists on the host, or use another GPU",
    });
  }
  if (gpu.computeCapability !== needs.computeCapability && /^\d/.test(gpu.computeCapability)) {
    problems.push({
      code: "gpu-kind",
      message: `${label} must have compute capability ${needs.computeCapability} of ${needs.name} (${needs.label}, host.gpu), got ${gpu.computeCapability} (${gpu.name})`,
      fix: "set host.gpu to the model of the GPU, because images and TensorRT engines depend on it",
    });
  }
  return { problems, notes: [] };
}

/** Newest driver that an image of the environment requires. */
function highestDriver({ drivers }: GpuNeeds): GpuNeeds["drivers"][number] | undefined {
  return [...drivers].sort((a, b) => b.branch - a.branch)[0];
}

function judgeDriver(needs: GpuNeeds, gpus: readonly Gpu[]): HostVerdict {
  const version = gpus[0]?.driver ?? "";
  const branch = Number.parseInt(version, 10);
  const highest = highestDriver(needs);
  if (highest === undefined || Number.isNaN(branch) || branch >= highest.branch) return noFindings;
  const message = `the NVIDIA driver must be ${highest.branch} or newer for CUDA ${highest.cuda} of ${highest.image}, got ${version}`;
  if (needs.dataCentre) {
    return note(
      `${message}; on a data-centre GPU the compatibility package of the image may suffice`,
    );
  }
  return problem({
    code: "nvidia-driver",
    message,
    fix: `upgrade the driver of the host, or set an older image`,
  });
}
