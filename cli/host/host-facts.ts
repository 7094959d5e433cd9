import { isAbsolute, join } from "node:path";
import type { HostRequirements } from "../../constructs/docker/host-requirements.ts";
import { randomModels } from "../../stacks/shared/random-weights.ts";
import { type ProgramResult, runProgram } from "../shared/run-program.ts";
import { Docker, DockerError } from "./docker-command.ts";
import {
  type EngineInfo,
  type Gpu,
  gpusArgs,
  imagesFormat,
  type Listener,
  listenersArgs,
  type PublishedPort,
  parseEngineInfo,
  parseFreeMiB,
  parseGpus,
  parseImages,
  parseListeners,
  parsePublished,
  publishedFormat,
} from "./host-parse.ts";
import { explainSsh, runOverSsh, sshFailed, sshTarget } from "./ssh.ts";

/** Fact that could not be read, with the reason. It is reported as a note and does not prevent a deployment. */
export interface Unknown {
  readonly unknown: string;
}

export function isUnknown(value: unknown): value is Unknown {
  return typeof value === "object" && value !== null && "unknown" in value;
}

/** Facts of a host, from its own commands. */
export interface HostFacts {
  readonly engine: EngineInfo;
  readonly published: readonly PublishedPort[];
  readonly listeners: readonly Listener[] | Unknown;
  /** Names of existing images. */
  readonly images: readonly string[];
  /** Free space of Docker's data folder in MiB. */
  readonly freeMiB: number | Unknown;
  /** Existence of each required file, in order. */
  readonly files: readonly (boolean | Unknown)[];
  /** Models whose manifests state random weights. */
  readonly randomWeights?: readonly string[];
  /** Absent if no GPU is required. */
  readonly nvidia?: {
    readonly gpus: readonly Gpu[] | "no-driver" | { readonly failed: string } | Unknown;
    /** Whether NVIDIA's hook for `docker run --gpus` is installed. */
    readonly hook: boolean | Unknown;
  };
  /** Absent if no kind cluster is required. */
  readonly kind?: KindFacts;
}

/** State of kind on this machine. */
export interface KindFacts {
  /** Version; undefined if it is not installed. */
  readonly kind: string | Unknown | undefined;
  /** Names of existing kind clusters. */
  readonly clusters: readonly string[];
}

/** Timeout of a program on the host. A first `nvidia-smi` without driver persistence takes several seconds. */
const programMs = 45_000;

/** Runs a program on the host of a Docker endpoint, locally or over ssh. */
export type RunOnHost = (
  program: string,
  args: readonly string[],
) => Promise<ProgramResult | Unknown>;

export function runnerFor(endpoint: string): RunOnHost {
  const target = sshTarget(endpoint);
  if (target !== undefined) {
    return async (program, args) => {
      const result = await runOverSsh(target, program, args, programMs);
      if (result.outcome === "ended" && result.exitCode === sshFailed) {
        throw new DockerError(explainSsh(result.stderr, target));
      }
      return asOnHost(result);
    };
  }
  if (isLocal(endpoint)) {
    return async (program, args) =>
      asOnHost(await runProgram(program, args, { timeoutMs: programMs }));
  }
  return async () => ({ unknown: `programs cannot be run on the host through ${endpoint}` });
}

function isLocal(endpoint: string): boolean {
  return /^(unix|npipe):|^tcp:\/\/(localhost|127\.0\.0\.1|\[::1\])(:|$)/.test(endpoint);
}

/** Maps exit code 127 of a shell to a missing program. */
function asOnHost(result: ProgramResult): ProgramResult {
  return result.exitCode === 127 ? { ...result, outcome: "missing" } : result;
}

/**
 * Reads the facts of a host that `requirements` concern.
 *
 * @param project - Base folder of relative paths.
 * @throws {DockerError} if Docker or the host cannot be reached.
 */
export async function readHostFacts(
  requirements: HostRequirements & { readonly docker: string },
  project: string,
): Promise<HostFacts> {
  const { docker: endpoint, gpu, files, kind: cluster } = requirements;
  const docker = new Docker(endpoint);
  const onHost = runnerFor(endpoint);
  // fails early in batch mode, because the docker command line would let ssh prompt for a password
  if (sshTarget(endpoint) !== undefined) await onHost("true", []);

  const { stdout } = await docker.run("info", "--format", "{{json .}}");
  const engine = parseEngineInfo(stdout);
  if (engine === undefined) {
    throw new DockerError({
      code: "docker-endpoint",
      message: `the server at ${endpoint} must be a Docker engine`,
      fix: "set host.docker to a Docker endpoint such as unix:///var/run/docker.sock or ssh://user@host",
    });
  }
  const [published, images, listeners, freeMiB, nvidia, kind, found, randomWeights] =
    await Promise.all([
      docker
        .run("ps", "--no-trunc", "--format", publishedFormat)
        .then((it) => parsePublished(it.stdout)),
      docker
        .run("image", "ls", "--digests", "--format", imagesFormat)
        .then((it) => parseImages(it.stdout)),
      readListeners(onHost),
      readFree(onHost, engine.rootDir),
      gpu === undefined ? undefined : readNvidia(onHost),
      cluster === undefined ? undefined : readKind(),
      Promise.all(
        files.map(({ path, on }) => {
          const absolute = isAbsolute(path) ? path : join(project, path);
          return fileExists(on === "here" ? runnerFor("unix://") : onHost, absolute);
        }),
      ),
      randomModels(files, project, async (path) => {
        const result = await onHost("cat", [path]);
        return isUnknown(result) ? "" : result.stdout;
      }),
    ]);
  return {
    engine,
    published,
    images,
    listeners,
    freeMiB,
    nvidia,
    kind,
    files: found,
    randomWeights,
  };
}

async function readListeners(onHost: RunOnHost): Promise<readonly Listener[] | Unknown> {
  const result = await onHost("ss", listenersArgs);
  if (isUnknown(result)) return result;
  if (result.outcome === "missing")
    return { unknown: "ss (package iproute2) is not installed on the host" };
  if (result.exitCode !== 0) return { unknown: `ss failed: ${firstLine(result)}` };
  return parseListeners(result.stdout);
}

async function readFree(onHost: RunOnHost, rootDir: string): Promise<number | Unknown> {
  const result = await onHost("df", ["-Pk", rootDir]);
  if (isUnknown(result)) return result;
  const free = result.exitCode === 0 ? parseFreeMiB(result.stdout) : undefined;
  return free ?? { unknown: `df of ${rootDir} failed: ${firstLine(result)}` };
}

async function readNvidia(onHost: RunOnHost): Promise<NonNullable<HostFacts["nvidia"]>> {
  const [smi, hook] = await Promise.all([
    onHost("nvidia-smi", gpusArgs),
    onHost("sh", [
      "-c",
      "PATH=$PATH:/usr/bin:/usr/local/bin; command -v nvidia-container-runtime-hook || command -v nvidia-container-toolkit",
    ]),
  ]);
  return {
    gpus: isUnknown(smi)
      ? smi
      : smi.outcome === "missing"
        ? "no-driver"
        : smi.exitCode === 0
          ? parseGpus(smi.stdout)
          : { failed: firstLine(smi) },
    hook: isUnknown(hook) ? hook : hook.exitCode === 0,
  };
}

async function readKind(): Promise<KindFacts> {
  const run = (program: string, ...args: readonly string[]) =>
    runProgram(program, args, { timeoutMs: programMs });
  const [kind, clusters] = await Promise.all([
    run("kind", "version"),
    run("kind", "get", "clusters"),
  ]);
  const version = (result: ProgramResult) => {
    if (result.outcome === "missing") return undefined;
    const found = /v\d+\.\d+[^\s,]*/.exec(result.stdout)?.[0];
    return result.exitCode === 0 && found !== undefined ? found : { unknown: firstLine(result) };
  };
  return {
    kind: version(kind),
    // 'No kind clusters found.' goes to stderr
    clusters: clusters.stdout.split("\n").filter((line) => line.trim() !== ""),
  };
}

async function fileExists(onHost: RunOnHost, path: string): Promise<boolean | Unknown> {
  const result = await onHost("test", ["-s", path]);
  return isUnknown(result) ? result : result.exitCode === 0;
}

/** First line of the error output; `nvidia-smi` writes errors to stdout. */
function firstLine({ outcome, stdout, stderr, exitCode }: ProgramResult): string {
  if (outcome === "late") return `timed out after ${programMs / 1000} s`;
  const line = `${stderr}\n${stdout}`.split("\n").find((it) => it.trim() !== "");
  return line?.trim() ?? `exit code ${exitCode}`;
}
