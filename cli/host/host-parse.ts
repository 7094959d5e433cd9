/** Port with a listener. */
export interface Listener {
  readonly port: number;
  /** `127.0.0.1`, `0.0.0.0`, `::`, `*`. */
  readonly address: string;
  /** `nginx (pid 812)`; absent if the user may not see it. */
  readonly process?: string;
}

/** Port published by a container. */
export interface PublishedPort {
  readonly port: number;
  readonly address: string;
  readonly container: string;
  /** Environment of the container. */
  readonly environment?: string;
}

export interface Gpu {
  readonly index: number;
  readonly uuid: string;
  readonly name: string;
  readonly memoryMiB: number;
  readonly freeMiB: number;
  readonly computeCapability: string;
  readonly driver: string;
  /** @default - MIG mode is off or unknown */
  readonly mig?: "enabled";
  /** Error that `nvidia-smi` prints in place of a value: `[Unknown Error]`. */
  readonly failure?: string;
}

/** Arguments of `ss` that {@link parseListeners} reads. */
export const listenersArgs = ["-Htlnp"] as const;

/** Parses `ss -Htlnp`: `LISTEN 0 4096 127.0.0.1:8010 0.0.0.0:* users:(("nginx",pid=812,fd=6))`. */
export function parseListeners(text: string): readonly Listener[] {
  return text.split("\n").flatMap((line) => {
    const [state, , , local = ""] = line.trim().split(/\s+/);
    const match = /^(.*):(\d+)$/.exec(local);
    if (state !== "LISTEN" || match === null) return [];
    const user = /users:\(\("([^"]*)",pid=(\d+)/.exec(line);
    return [
      {
        port: Number(match[2]),
        address: normalisedAddress(match[1] ?? ""),
        process: user === null ? undefined : `${user[1]} (pid ${user[2]})`,
      },
    ];
  });
}

/** Removes brackets and interface: `[::1]`, `127.0.0.53%lo`. */
function normalisedAddress(text: string): string {
  return text.replace(/^\[(.*)\]$/, "$1").replace(/%.*$/, "");
}

/** Container label with the name of the environment. */
export const environmentLabel = "clipstack.environment";

/** Format of `docker ps` that {@link parsePublished} reads. */
export const publishedFormat = `{{.Names}}\t{{.Label "${environmentLabel}"}}\t{{.Ports}}`;

/** Parses `docker ps`: `web<tab><tab>0.0.0.0:8010-8012->8000-8002/tcp, :::8010->8000/tcp, 9000/tcp`. */
export function parsePublished(text: string): readonly PublishedPort[] {
  return text
    .split("\n")
    .filter((line) => line.includes("\t"))
    .flatMap((line) => {
      const [container = "", environment = "", ports = ""] = line.split("\t");
      return ports.split(", ").flatMap((mapping) => {
        const match = /^(.*):(\d+)(?:-(\d+))?->[\d-]+\/tcp$/.exec(mapping);
        if (match === null) return [];
        const first = Number(match[2]);
        const last = Number(match[3] ?? first);
        return Array.from({ length: last - first + 1 }, (_, offset) => ({
          port: first + offset,
          address: normalisedAddress(match[1] ?? ""),
          container,
          environment: environment === "" ? undefined : environment,
        }));
      });
    });
}

/** Arguments of `nvidia-smi` that {@link parseGpus} reads. */
export const gpusArgs = [
  "--query-gpu=index,uuid,memory.total,memory.free,compute_cap,driver_version,mig.mode.current,name",
  "--format=csv,noheader,nounits",
] as const;

/** Parses `nvidia-smi`: `0, GPU-8a56a4bc-…, 16376, 15956, 8.9, 570.86.15, [N/A], NVIDIA GeForce RTX 4080`. */
export function parseGpus(text: string): readonly Gpu[] {
  return text.split("\n").flatMap((line) => {
    const cells = line.split(",").map((cell) => cell.trim());
    const [index = "", uuid = "", total, free, computeCapability = "", driver = "", ...rest] =
      cells;
    const [mig = ""] = rest;
    const name = /^(Enabled|Disabled|\[.*\])$/.test(mig) ? rest.slice(1) : rest;
    const failure = [total, free].find((cell) => /^\[(?!N\/A|Not Supported)/.test(cell ?? ""));
    if (!/^\d+$/.test(index)) return [];
    return [
      {
        index: Number(index),
        uuid,
        name: name.join(", "),
        // `[N/A]` if memory is shared with the processor
        memoryMiB: numberOr(total, Number.POSITIVE_INFINITY),
        freeMiB: numberOr(free, Number.POSITIVE_INFINITY),
        computeCapability,
        driver,
        ...(mig === "Enabled" && { mig: "enabled" as const }),
        ...(failure !== undefined && { failure }),
      },
    ];
  });
}

function numberOr(text: string | undefined, otherwise: number): number {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : otherwise;
}

/** Parses `df -Pk PATH`: free space in MiB. */
export function parseFreeMiB(text: string): number | undefined {
  const cells = text.trim().split("\n").at(-1)?.split(/\s+/) ?? [];
  const kiB = cells[3];
  return kiB !== undefined && /^\d+$/.test(kiB) ? Math.floor(Number(kiB) / 1024) : undefined;
}

export interface EngineInfo {
  readonly version: string;
  readonly osType: string;
  /** Kernel name: `x86_64`, `aarch64`. */
  readonly architecture: string;
  /** Folder of images and volumes on the host. */
  readonly rootDir: string;
  readonly runtimes: readonly string[];
  /** CDI devices, if the engine reports them: `nvidia.com/gpu=0`. */
  readonly cdiDevices: readonly string[];
  /** Number of CPU cores; absent if the engine does not report it. */
  readonly cores?: number;
  /** Memory in MiB; absent if the engine does not report it. */
  readonly memoryMiB?: number;
}

/** Parses `docker info --format '{{json .}}'`; undefined if no engine responded. */
export function parseEngineInfo(text: string): EngineInfo | undefined {
  let info: Record<string, unknown>;
  try {
    info = JSON.parse(text);
  } catch {
    return undefined;
  }
  const field = (key: string) => (typeof info[key] === "string" ? (info[key] as string) : "");
  if (field("ServerVersion") === "") return undefined;
  const devices = Array.isArray(info.DiscoveredDevices) ? info.DiscoveredDevices : [];
  return {
    version: field("ServerVersion"),
    osType: field("OSType"),
    architecture: field("Architecture"),
    rootDir: field("DockerRootDir"),
    runtimes: Object.keys(info.Runtimes ?? {}).sort(),
    cdiDevices: devices
      .filter((it: { Source?: unknown }) => it?.Source === "cdi")
      .map((it: { ID?: unknown }) => String(it.ID)),
    ...(typeof info.MemTotal === "number" &&
      info.MemTotal > 0 && { memoryMiB: Math.floor(info.MemTotal / 2 ** 20) }),
    ...(typeof info.NCPU === "number" && info.NCPU > 0 && { cores: info.NCPU }),
  };
}

/** Format of `docker image ls --digests` that {@link parseImages} reads. */
export const imagesFormat = "{{.Repository}}\t{{.Tag}}\t{{.Digest}}";

/** Parses `docker image ls`: all names of each image, `name:tag` and `name@sha256:…`. */
export function parseImages(text: string): readonly string[] {
  return text.split("\n").flatMap((line) => {
    const [repository = "", tag = "", digest = ""] = line.split("\t");
    if (repository === "" || repository === "<none>") return [];
    return [
      ...(tag === "<none>" ? [] : [`${repository}:${tag}`]),
      ...(digest === "<none>" || digest === "" ? [] : [`${repository}@${digest}`]),
    ];
  });
}
