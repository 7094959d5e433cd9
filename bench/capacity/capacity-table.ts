import table from "./parameters.json" with { type: "json" };

/** Parameters of the services, each derived from one published figure by the laboratory. */
export interface CapacityParameters {
  /** Time to encode the tensor of one image as JSON text, and the size of that text. */
  readonly jsonMsPerImage: number;
  readonly jsonBytesPerImage: number;
  /** Decode time of clipstack's embed server: `smallMs` for a JPEG of `smallBytes`; it grows with the file size to the power of `power`. */
  readonly clipstackDecode: {
    readonly smallMs: number;
    readonly smallBytes: number;
    readonly power: number;
  };
  /** Processor time of clipstack's gateway per JPEG, decoding included: measured for several file sizes. `floatMs` is added if it sends float32 tensors instead of 8-bit pixels. */
  readonly gateway: {
    readonly measured: readonly { readonly bytes: number; readonly ms: number }[];
    readonly floatMs: number;
  };
  /** Time in Triton besides input and compute, mostly the batcher's queue delay. */
  readonly overheadMs: number;
  /** Time per request in which Triton's backend copies the input. */
  readonly inputMs: number;
  readonly ingestPerCore: IngestPerCore;
  /** Share of the peak performance that the model alone reaches in large batches. */
  readonly sustainedShare: number;
  /** Compute time of one image by `gpu/backend`. */
  readonly firstImageMs: Readonly<Record<string, number>>;
}

/** Processor time of Triton per image, measured with a backend that computes nothing. */
export interface IngestPerCore {
  readonly ms: {
    readonly httpFp32: number;
    readonly httpUint8: number;
    readonly grpcFp32: number;
  };
  /** Exponent of the number of cores of one Triton server, at most 1. */
  readonly scaling: number;
  /** Maximum number of cores in the measurement. */
  readonly measuredCores: number;
}

/** Peak performance (FP16, dense) by GPU, in TFLOPS. */
export type Peaks = Readonly<Record<string, number>>;

/** Quantities that are predicted with an interval. */
export type PredictedKind = "throughput" | "latency";

/** Ratios of published to predicted figures, by setting. */
export type ErrorFactors = Readonly<Record<PredictedKind, readonly (readonly number[])[]>>;

/** Result of the calibration, which `npm run render` writes to `parameters.json` from the figures in `lab/published`. */
export interface CapacityTable {
  readonly parameters: CapacityParameters;
  /** Parameters from sources that round to the published figures. */
  readonly roundedParameters: readonly CapacityParameters[];
  /** Errors in settings that were left out of the calibration. */
  readonly errorFactors: ErrorFactors;
  /** Peaks of GPUs that the catalogue lacks. */
  readonly otherPeaks: Peaks;
  /** Error of the model, as a sentence. */
  readonly summary: string;
}

export const capacityTable: CapacityTable = table;
