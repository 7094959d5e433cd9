/** Versions in NVIDIA's Triton images (`nvcr.io/nvidia/tritonserver:<release>-py3`). To add a release, add its row with its sources. */

/** Source of a version. */
type Source =
  /** `docs.nvidia.com/deeplearning/triton-inference-server/release-notes/rel-<yy>-<mm>.html` */
  | "release notes"
  /** `docs/introduction/compatibility.md` of triton-inference-server/server, branch r26.08. */
  | "compatibility table"
  | `http${string}`;

export interface TritonRelease {
  /** `year.month` */
  readonly release: `${number}.${number}`;
  /** A version that ends in `.x` is inferred; {@link sources} states from what. */
  readonly tensorrt?: string;
  readonly onnxruntime?: string;
  readonly cuda: string;
  /** Python of the container, which runs the Python backend. */
  readonly python?: string;
  readonly sources: readonly Source[];
}

/** TensorRT 11 was published on 27 May 2026: earlier images contain 10.x or older. */
const beforeTensorrt11 = "https://github.com/NVIDIA/TensorRT/releases";
const modelOptimizer = "https://github.com/NVIDIA/Model-Optimizer/pull/1112";
const cudaDl =
  "https://docs.nvidia.com/deeplearning/frameworks/cuda-dl-release-notes/rel-26-03.html";
/** Triton's tests of 26.06 call the API of TensorRT 11, and the ONNX Runtime backend was prepared for it. */
const tests11 = "https://github.com/triton-inference-server/server/pull/8828";
const backend11 = "https://github.com/triton-inference-server/onnxruntime_backend/pull/345";

/** Releases with a source, oldest first. A release without a row has at least the versions of the row before it. */
export const tritonReleases: readonly TritonRelease[] = [
  {
    release: "20.06",
    tensorrt: "7.1.2",
    cuda: "11.0.167",
    python: "3.6",
    sources: ["release notes"],
  },
  {
    release: "23.01",
    cuda: "12.0",
    sources: ["https://docs.nvidia.com/deploy/cuda-compatibility/"],
  },
  {
    release: "25.06",
    tensorrt: "10.x",
    onnxruntime: "1.22.0",
    cuda: "12.9.1",
    python: "3.12.3",
    sources: ["release notes", "compatibility table", beforeTensorrt11],
  },
  {
    release: "25.08",
    tensorrt: "10.x",
    onnxruntime: "1.23.0",
    cuda: "13.0.0",
    python: "3.12.3",
    sources: ["release notes", "compatibility table", beforeTensorrt11],
  },
  {
    release: "26.02",
    tensorrt: "10.15.1",
    onnxruntime: "1.24.1",
    cuda: "13.1.1",
    python: "3.12.3",
    sources: ["release notes", "compatibility table", modelOptimizer],
  },
  {
    release: "26.03",
    tensorrt: "10.16.0",
    onnxruntime: "1.24.2",
    cuda: "13.2.0",
    python: "3.12.3",
    sources: ["compatibility table", cudaDl],
  },
  {
    release: "26.04",
    tensorrt: "10.x",
    onnxruntime: "1.24.4",
    cuda: "13.2.1",
    python: "3.12.3",
    sources: ["release notes", "compatibility table", beforeTensorrt11],
  },
  {
    release: "26.05",
    tensorrt: "10.x",
    onnxruntime: "1.24.4",
    cuda: "13.2.1",
    python: "3.12.3",
    sources: ["release notes", "compatibility table", beforeTensorrt11],
  },
  {
    release: "26.06",
    tensorrt: "11.x",
    onnxruntime: "1.24.4",
    cuda: "13.3.0",
    python: "3.12.3",
    sources: ["release notes", "compatibility table", tests11, backend11],
  },
  {
    release: "26.07",
    tensorrt: "11.x",
    onnxruntime: "1.27.0",
    cuda: "13.3.1",
    python: "3.12.3",
    sources: ["release notes", "compatibility table", tests11],
  },
  {
    release: "26.08",
    tensorrt: "11.x",
    onnxruntime: "1.28.0",
    cuda: "13.4.1",
    python: "3.12.3",
    sources: ["release notes", "compatibility table", tests11],
  },
  { release: "26.09", tensorrt: "11.x", cuda: "13.4.1", sources: ["release notes", tests11] },
  { release: "26.10", tensorrt: "11.x", cuda: "13.4.3", sources: ["release notes", tests11] },
];

/** Image of the settings' default. */
export const defaultTritonImage = "nvcr.io/nvidia/tritonserver:26.07-py3";

/** Release in one of NVIDIA's tags, `year.month-…`, with or without a digest; undefined for other tags and for digests alone. */
export function tritonReleaseOf(image: string): string | undefined {
  return /:(\d\d\.\d\d)-[^:/@]*(@sha256:[0-9a-f]{64})?$/.exec(image)?.[1];
}

/** Returns the row of an image's release, or of the closest earlier release; undefined if the release is unknown or earlier than all rows. */
export function versionsOf(image: string): TritonRelease | undefined {
  const release = tritonReleaseOf(image);
  return tritonReleases.findLast((row) => release !== undefined && row.release <= release);
}

/** First release whose TensorRT takes the precision from the graph and ignores `precision_mode`: TensorRT 11 has only strongly typed networks. */
export const firstStronglyTyped = tritonReleases.find(
  ({ tensorrt = "" }) => Number.parseInt(tensorrt, 10) >= 11,
)!.release;

/**
 * What determines the precision of a TensorRT engine. `precision-mode`: the parameter `precision_mode`, with the FP32 file.
 * `graph`: the graph, which must be in half precision. `both`: the release is unknown, so that the parameter and the graph are FP16.
 */
export type PrecisionSource = "precision-mode" | "graph" | "both";

/** Precision source of the TensorRT in an image. @param image - Undefined for an image built from the default one. */
export function precisionSourceOf(image: string = defaultTritonImage): PrecisionSource {
  const release = tritonReleaseOf(image);
  if (release === undefined) return "both";
  return release < firstStronglyTyped ? "precision-mode" : "graph";
}
