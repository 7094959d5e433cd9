import type { HostRequirements, RequiredPort } from "../../constructs/docker/host-requirements.ts";
import type { Problem } from "../problem.ts";
import { isOlder } from "../versions.ts";
import { type HostFacts, isUnknown } from "./host-facts.ts";
import type { Gpu, Listener, PublishedPort } from "./host-parse.ts";

/** What the comparison of a host with its requirements gives. */
export interface HostVerdict {
  /** What stands in the way, one for each problem. Empty: the environment can be deployed. */
  readonly problems: readonly Problem[];
  /** What could not be seen, or may be meant: a line each. */
  readonly notes: readonly string[];
}

type Needs = HostRequirements;
type GpuNeeds = NonNullable<HostRequirements["gpu"]>;
type GpuUse = GpuNeeds["uses"][number];
type GpuId = GpuUse["gpus"][number];

/** Compare a host with what an environment needs of it. */
export function judgeHost(needs: Needs, facts: HostFacts): HostVerdict {
  return merged(
    judgeEngine(facts),
    needs.gpu === undefined ? nothing : judgeNvidia(needs.gpu, facts, isDeployed(needs, facts)),
    needs.kind === undefined ? nothing : judgeKind(needs.kind, facts),
    judgePorts(needs, facts),
    judgeDisk(needs, facts),
    judgeFiles(needs, facts),
  );
}

export const nothing: HostVerdict = { problems: [], notes: [] };

/** Problems and notes of all verdicts, in their order. */
export function merged(...verdicts: readonly HostVerdict[]): HostVerdict {
  return {
    problems: verdicts.flatMap(({ problems }) => problems),
    notes: verdicts.flatMap(({ notes }) => notes),
  };
}

export const problem = (it: Problem): HostVerdict => ({ problems: [it], notes: [] });
export const note = (line: string): HostVerdict => ({ problems: [], notes: [line] });

/** First engine with the API that the docker provider speaks and health checks of today. */
const oldestEngine = "20.10";

function judgeEngine({ engine }: HostFacts): HostVerdict {
  const problems: Problem[] = [];
  if (isOlder(engine.version, oldestEngine)) {
    problems.push({
      code: "docker-version",
      message: `Docker must be ${oldestEngine} or newer, it is ${engine.version}`,
      fix: "upgrade it: docs.docker.com/engine/install",
    });
  }
  if (engine.osType !== "linux") {
    problems.push({
      code: "platform",
      message: `Docker must run Linux containers, it runs ${engine.osType} containers`,
      fix: "switch it to Linux containers, or set host.docker to a Linux machine",
    });
  } else if (!architectures.has(engine.architecture)) {
    problems.push({
      code: "platform",
      message: `the host must be x86_64 or aarch64, it is ${engine.architecture}`,
      fix: "set host.docker to another machine",
    });
  }
  return { problems, notes: [] };
}

const architectures: ReadonlySet<string> = new Set(["x86_64", "amd64", "aarch64", "arm64"]);

const installToolkit =
  "install NVIDIA Container Toolkit on the host, then 'sudo nvidia-ctk runtime configure --runtime=docker' and 'sudo systemctl restart docker'";

/** Whether containers of the environment run there: what they use is what is needed. */
function isDeployed({ environment }: Needs, { published }: HostFacts): boolean {
  return published.some((it) => it.environment === environment);
}

function judgeNvidia(
  needs: GpuNeeds,
  { engine, nvidia }: HostFacts,
  deployed: boolean,
): HostVerdict {
  const runtime = judgeRuntime(needs, engine, nvidia?.hook ?? { unknown: "" });
  const gpus = nvidia?.gpus ?? { unknown: "nvidia-smi was not run" };
  if (gpus === "no-driver") {
    const none = problem({
      code: "nvidia-driver",
      message: "the host has no nvidia-smi, so no NVIDIA driver is installed there",
      fix: "install the driver and reboot the host, or set accelerator: cpu",
    });
    return merged(runtime, none);
  }
  if ("failed" in gpus) {
    const broken = problem({
      code: "nvidia-driver",
      message: `nvidia-smi fails on the host: ${gpus.failed}`,
      fix: "reboot the host after an update of the driver, or install the driver again",
    });
    return merged(runtime, broken);
  }
  return isUnknown(gpus)
    ? merged(runtime, note(`GPUs were not looked at: ${gpus.unknown}`))
    : merged(runtime, judgeGpus(needs, gpus, deployed));
}

/** One GPU is asked for with `gpus`, which the hook or CDI answers; several with the runtime `nvidia`. */
function judgeRuntime(
  { uses }: GpuNeeds,
  engine: HostFacts["engine"],
  hook: NonNullable<HostFacts["nvidia"]>["hook"],
): HostVerdict {
  if (engine.runtimes.includes("nvidia")) return nothing;
  const several = uses.find(({ gpus }) => gpus.length > 1);
  if (several !== undefined) {
    return problem({
      code: "nvidia-runtime",
      message: `Docker has no runtime 'nvidia', which ${several.service} needs for ${several.gpus.length} GPUs (it has ${engine.runtimes.join(", ")})`,
      fix: installToolkit,
    });
  }
  if (hook === true || engine.cdiDevices.some((id) => id.startsWith("nvidia.com/gpu="))) {
    return nothing;
  }
  if (isUnknown(hook)) {
    return note(
      "Docker has no runtime 'nvidia'; whether it can hand GPUs to containers was not looked at",
    );
  }
  return problem({
    code: "nvidia-runtime",
    message:
      "Docker cannot hand GPUs to containers: it has neither the runtime 'nvidia' nor CDI devices of NVIDIA",
    fix: installToolkit,
  });
}

/** A GPU with error correction switched on, or another driver, shows up to a sixteenth less than the catalogue says. */
const vramTolerance = 0.93;

function judgeGpus(needs: GpuNeeds, gpus: readonly Gpu[], deployed: boolean): HostVerdict {
  const problems: Problem[] = [];
  const has = `${gpus.length} ${gpus.length === 1 ? "GPU" : "GPUs"}`;
  if (gpus.length < needs.count) {
    problems.push({
      code: "gpu-count",
      message: `host.count is ${needs.count}, the host has ${gpus.length === 0 ? "no GPU" : gpus.length}`,
      fix:
        gpus.length === 0
          ? "rent a host with GPUs, or set accelerator: cpu"
          : `set host.count to ${gpus.length} and name only these GPUs, or take a host with ${needs.count}`,
    });
  }
  const find = (id: GpuId) =>
    gpus.find(({ index, uuid }) => (typeof id === "number" ? index === id : uuid === id));
  const usesOf = new Map<GpuId, GpuUse[]>();
  for (const use of needs.uses) {
    for (const id of use.gpus) usesOf.set(id, [...(usesOf.get(id) ?? []), use]);
  }
  for (const [id, uses] of usesOf) {
    const users = uses.map(({ service }) => service);
    const gpu = find(id);
    const shown = typeof id === "number" ? `GPU ${id}` : id;
    if (gpu === undefined) {
      // said once: too few GPUs is why an index is not there
      if (typeof id === "number" && id < needs.count && gpus.length < needs.count) continue;
      problems.push({
        code: "gpu-missing",
        message: `${shown}, which ${users.join(" and ")} ${users.length === 1 ? "names" : "name"}, is not there (${has}${gpus.length === 0 ? "" : `: ${gpus.map((it) => (typeof id === "number" ? it.index : it.uuid)).join(", ")}`})`,
        fix: "name GPUs that 'nvidia-smi -L' lists on the host",
      });
      continue;
    }
    if (gpu.memoryMiB < needs.vramMiB * vramTolerance) {
      problems.push({
        code: "gpu-memory",
        message: `${shown} (${gpu.name}) has ${gpu.memoryMiB} MiB, ${needs.name} of the settings has ${needs.vramMiB}`,
        fix: "set host.gpu to the kind of GPU that is there, so that memory is planned for it",
      });
    }
    const needed = uses.reduce((sum, { miB }) => sum + miB, 0);
    if (!deployed && gpu.memoryMiB >= needed && gpu.freeMiB < needed) {
      problems.push({
        code: "gpu-memory",
        message: `${shown} has ${gpu.freeMiB} MiB free of ${gpu.memoryMiB}, and the services need about ${needed} (${uses.map(({ service, miB }) => `${service} ${miB}`).join(" + ")})`,
        fix: "stop what uses it ('nvidia-smi' on the host lists it), or name another GPU",
      });
    }
    if (gpu.computeCapability !== needs.computeCapability && /^\d/.test(gpu.computeCapability)) {
      problems.push({
        code: "gpu-kind",
        message: `${shown} is ${gpu.name} with compute capability ${gpu.computeCapability}, ${needs.name} of the settings (${needs.label}) has ${needs.computeCapability}`,
        fix: "set host.gpu to the kind of GPU that is there: images and TensorRT engines depend on it",
      });
    }
  }
  return merged({ problems, notes: [] }, judgeDriver(needs, gpus));
}

function judgeDriver(needs: GpuNeeds, gpus: readonly Gpu[]): HostVerdict {
  const version = gpus[0]?.driver ?? "";
  const branch = Number.parseInt(version, 10);
  const highest = [...needs.drivers].sort((a, b) => b.branch - a.branch)[0];
  if (highest === undefined || Number.isNaN(branch) || branch >= highest.branch) return nothing;
  const said = `${highest.image} has CUDA ${highest.cuda}, which needs NVIDIA driver ${highest.branch} or newer, the host has ${version}`;
  if (needs.dataCentre) {
    return note(
      `${said}; on a data-centre GPU the image's compatibility package may make up for it`,
    );
  }
  return problem({
    code: "nvidia-driver",
    message: said,
    fix: `upgrade the driver of the host to ${highest.branch} or newer, or set an older image`,
  });
}

function judgeKind(needs: NonNullable<Needs["kind"]>, { kind, images }: HostFacts): HostVerdict {
  const problems: Problem[] = [];
  const notes: string[] = [];
  if (kind?.kind === undefined) {
    problems.push({
      code: "kind",
      message: "kind is not installed on this machine, and a deployment of the cluster runs it",
      fix: "install it: kind.sigs.k8s.io",
    });
  } else if (isUnknown(kind.kind)) {
    problems.push({
      code: "kind",
      message: `kind does not work on this machine: ${kind.kind.unknown}`,
      fix: "install it again: kind.sigs.k8s.io",
    });
  }
  for (const image of needs.images.filter((it) => !images.includes(it))) {
    problems.push({
      code: "image",
      message: `the image ${image} (embed.image) is not on this machine, and nothing is pulled`,
      fix: "build or pull it, or set embed.image to { source: build }",
    });
  }
  if (kind?.clusters.includes(needs.cluster)) {
    notes.push(
      `a kind cluster '${needs.cluster}' is there already: the one that this environment deployed goes on, any other is left alone and the deployment refused`,
    );
  }
  return { problems, notes };
}

/** Whether a container belongs to the environment: the node of a kind cluster says so by its name. */
function isOwn({ environment, kind }: Needs, it: PublishedPort): boolean {
  return (
    it.environment === environment ||
    (kind !== undefined && it.container === `${kind.cluster}-control-plane`)
  );
}

function judgePorts(needs: Needs, facts: HostFacts): HostVerdict {
  const { listeners, published } = facts;
  const own = published.filter((it) => isOwn(needs, it));
  const others = published.filter((it) => !isOwn(needs, it));
  const problems = needs.ports.flatMap((needed) => {
    const choose = `or set another ${needed.setting} for ${needed.service}`;
    const taken = (by: string, fix: string): Problem => ({
      code: "port",
      message: `port ${needed.port} of the host (${needed.service}, ${needed.setting}) is in use by ${by}`,
      fix,
    });
    const container = others.find((it) => collides(needed, it));
    if (container !== undefined) {
      return [taken(holder(container), `${freeing(container)}, ${choose}`)];
    }
    // the engine listens for this environment's own containers
    if (isUnknown(listeners) || own.some((it) => it.port === needed.port)) return [];
    const listener = listeners.find((it) => collides(needed, it));
    if (listener === undefined) return [];
    return listener.process === undefined
      ? [
          taken(
            "another program",
            `see which with 'sudo ss -tlnp sport = :${needed.port}' and stop it, ${choose}`,
          ),
        ]
      : [taken(listener.process, `stop it, ${choose}`)];
  });
  return {
    problems,
    notes: isUnknown(listeners)
      ? [`ports were compared with those of containers only: ${listeners.unknown}`]
      : [],
  };
}

function holder({ container, environment }: PublishedPort): string {
  return environment === undefined
    ? `container ${container}`
    : `container ${container} of ${environment}`;
}

function freeing({ container, environment }: PublishedPort): string {
  return environment === undefined
    ? `stop it ('docker stop ${container}')`
    : `destroy ${environment} first ('npx cdktf destroy ${environment}')`;
}

/** Whether both cannot be bound at once. */
function collides(
  needed: RequiredPort,
  other: Pick<Listener | PublishedPort, "port" | "address">,
): boolean {
  if (needed.port !== other.port) return false;
  const every = (address: string) => address === "0.0.0.0" || address === "::" || address === "*";
  if (every(other.address)) return true;
  if (other.address.includes(":") && !other.address.startsWith("::ffff:")) return false;
  return every(needed.address) || other.address.replace("::ffff:", "") === needed.address;
}

function judgeDisk({ disk }: Needs, { freeMiB, images, engine }: HostFacts): HostVerdict {
  const needed = disk.filter(({ image }) => image === undefined || !images.includes(image));
  const total = needed.reduce((sum, { miB }) => sum + miB, 0);
  if (isUnknown(freeMiB)) {
    return note(`free space of Docker's folder was not looked at: ${freeMiB.unknown}`);
  }
  if (freeMiB >= total) return nothing;
  return problem({
    code: "disk",
    message: `${engine.rootDir} has ${giB(freeMiB)} GiB free, and ${giB(total)} are needed (${needed.map(({ what, miB }) => `${what} ${giB(miB)}`).join(" + ")})`,
    fix: "make room ('docker system df' tells what takes it, 'docker image prune -a' removes images that nothing uses), or move Docker's data-root",
  });
}

/** MiB as GiB, with one decimal. */
export function giB(miB: number): string {
  return (miB / 1024).toFixed(1);
}

function judgeFiles({ files }: Needs, facts: HostFacts): HostVerdict {
  const problems: Problem[] = [];
  const notes: string[] = [];
  files.forEach(({ path, on, what }, index) => {
    const found = facts.files[index] ?? { unknown: "nobody looked" };
    if (found === true) return;
    const place = on === "here" ? "on this machine" : "on the host";
    if (isUnknown(found)) notes.push(`${what} ${place} was not looked for: ${found.unknown}`);
    else {
      problems.push({
        code: "file",
        message: `${what} must be ${place}, and ${path} is not there`,
        fix:
          on === "here"
            ? "'npx clipstack model generate' makes it with random weights; or put your own file there"
            : `copy it there, for example with 'scp', or set weights: volume, which brings it along`,
      });
    }
  });
  return { problems, notes };
}
