import { type WeightsPrecision, weightsMiB } from "../../contract/model-shapes.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { findingIf } from "./findings.ts";
import { memoryFindings } from "./memory.ts";
import { activationsMiB, weightsOfMiB } from "./vram.ts";

/**
 * Memory and CPU limits of containers on a host. A limit is an upper bound, not a reservation: the kernel kills a process that exceeds
 * it, and not another one of the host.
 */

/** Parts of the limits, in MiB. */
const parts = {
  /** Program, native libraries and thread stacks of a server. */
  program: 512,
  /** Pinned buffers and the context of CUDA on the host side. */
  cuda: 1_024,
  /** Builder and timing cache of TensorRT; one engine is built at a time. */
  engineBuild: 2_048,
  /** Threads and pinned buffers of DALI's pipelines. */
  dali: 1_024,
  /** PyTorch and its libraries. */
  pytorch: 3_072,
} as const;

/** JavaScript heap of the embed server and of the Triton emulator. Bodies, images and tensors are outside the heap. */
export const heapMiB = 1_024;
export const nodeOptions = `--max-old-space-size=${heapMiB}`;

/** Decoded images of the largest accepted size in memory at a time. */
export const largestImages = 8;
const bytesPerPixel = 4;

/** Requests of the largest accepted size that a Triton server holds at a time. */
const tritonRequests = 4;

export interface EmbedMemory {
  /** Models that the server runs itself; none for a gateway. */
  readonly models: readonly ModelSpec[];
  readonly onGpu: boolean;
  /** Maximum bytes of queued bodies and of their responses. */
  readonly queueBytes: number;
  /** Decoded pixels in memory, over all images. */
  readonly pixelsInFlight: number;
  /** Sessions of each model. */
  readonly instances: number;
  readonly tmpMiB: number;
}

/** Returns the memory limit of an embed server in MiB. */
export function embedMemoryMiB(embed: EmbedMemory): number {
  const { models, onGpu, queueBytes, pixelsInFlight, instances, tmpMiB } = embed;
  return rounded(
    parts.program +
      heapMiB +
      queueBytes / 2 ** 20 +
      (pixelsInFlight * bytesPerPixel) / 2 ** 20 +
      tmpMiB +
      (onGpu ? parts.cuda : 0) +
      modelsMiB(models, "fp32", instances),
  );
}

export interface TritonMemory {
  readonly models: readonly ModelSpec[];
  /** Execution instances of each model in this process, on all GPUs together. On a GPU, activations are in GPU memory. */
  readonly instances: number;
  readonly gpus: number;
  /** Served versions of each model; undefined if no version can be added. */
  readonly versions?: number | undefined;
  /** Whether TensorRT compiles the models. */
  readonly compiles: boolean;
  readonly decodes: boolean;
  /** Maximum size of a request. */
  readonly requestBytes: number;
  /** `/dev/shm` and `/tmp`, which count towards the limit, and the heap of an emulator. */
  readonly sharedMiB: number;
}

/** Returns the memory limit of a Triton server in MiB. */
export function tritonMemoryMiB(triton: TritonMemory): number {
  const { models, instances, gpus, versions, compiles, decodes, requestBytes, sharedMiB } = triton;
  return rounded(
    parts.program +
      gpus * parts.cuda +
      (compiles ? parts.engineBuild : 0) +
      (decodes ? parts.dali : 0) +
      (tritonRequests * requestBytes) / 2 ** 20 +
      sharedMiB +
      // a reload holds both configurations, and an added version is also loaded under a second name
      (versions === undefined ? 2 : versions + 2) *
        (gpus > 0 ? weightsOfMiB(models, "fp32") : modelsMiB(models, "fp32", instances)),
  );
}

/** Returns the memory limit of the PyTorch baseline in MiB. */
export function pytorchMemoryMiB(models: readonly ModelSpec[], tmpMiB: number): number {
  return rounded(parts.pytorch + parts.cuda + tmpMiB + modelsMiB(models, "fp32", 1));
}

/** Weights, their copy while a session is created, and activations of a full batch on the CPU. */
function modelsMiB(
  models: readonly ModelSpec[],
  precision: WeightsPrecision,
  instances: number,
): number {
  return models
    .flatMap(({ towers, batching }) =>
      Object.values(towers).map(
        (tower) =>
          weightsMiB(tower, precision) +
          instances * (weightsMiB(tower, precision) + activationsMiB(tower, batching.maximum)),
      ),
    )
    .reduce((sum, miB) => sum + miB, 0);
}

function rounded(miB: number): number {
  return Math.ceil(miB / 256) * 256;
}

/** CPU shares, which apply while all cores are busy: inference precedes decoding, and both precede the PyTorch baseline and monitoring. */
const cpuShares = {
  triton: 2_048,
  embed: 1_024,
  proxy: 1_024,
  baseline: 512,
  monitoring: 256,
} as const;

/** Memory limit of the TLS proxy in MiB, which streams requests. */
export const proxyMemoryMiB = 256;

/**
 * Arguments of `docker_container`. Without swap, a container that reaches its limit does not slow down the host.
 *
 * @param cores - CPU cores of the host; a container may use all but one. Undefined: only the shares limit it.
 */
export function limitsOf(
  kind: keyof typeof cpuShares,
  memoryMiB: number,
  cores: number | undefined,
) {
  return {
    memory: memoryMiB,
    memorySwap: memoryMiB,
    cpuShares: cpuShares[kind],
    ...(cores !== undefined && { cpus: Math.max(1, cores - 1).toFixed(1) }),
  };
}

/** Rejects a memory limit that the weights, or the JavaScript heap, alone exceed. */
export function memoryLimitFindings(
  limitMiB: number,
  models: readonly ModelSpec[],
  heap = 0,
): readonly string[] {
  const weightsMiB = weightsOfMiB(models, "fp32");
  const least = heap + parts.program;
  return weightsMiB >= least
    ? memoryFindings("memoryMiB", limitMiB, weightsMiB)
    : findingIf(limitMiB < least, "memoryMiB", `be at least ${least}`, `${limitMiB}`);
}
