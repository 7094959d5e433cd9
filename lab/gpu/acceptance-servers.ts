import { rmSync } from "node:fs";
import { readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Child, startChild } from "../../artefact/child-process.ts";
import { freePorts } from "../../artefact/free-ports.ts";
import { waitUntilReady, withLifeline } from "../../artefact/simulation.ts";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModels } from "../../contract/models/index.ts";
import { openclipVitB32 } from "../../contract/models/openclip-vit-b32.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import type { ServerEnvName } from "../../contract/server/server-env.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { UserError } from "../../contract/user-error.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";

const project = fileURLToPath(new URL("../../", import.meta.url));

export type EngineName = "onnxruntime" | "pytorch";
export type Device = "cuda" | "cpu";

/** Parts of the machine that the servers run on. */
export interface Parts {
  /** Folder with `bin/tritonserver`, whose Python backend has NumPy 1. */
  readonly triton: string;
  /** Folders of Python packages for `python` and Triton's Python backend, separated by ':'. */
  readonly packages: string;
  readonly python: string;
  readonly device: Device;
}

/** Catalogue model under another name, with larger batches. */
export const largeBatchSpec: ModelSpec = {
  ...openclipVitB32,
  name: `${openclipVitB32.name}-b256`,
  batching: { ...openclipVitB32.batching, maximum: 256 },
};

/** Running server. */
export interface Server {
  readonly child: Child;
  /** Start to ready, in milliseconds. */
  readonly readyMs: number;
  /** `http`, `grpc` and `metrics` of Triton; `http` alone of the others. */
  readonly ports: { readonly http: number; readonly grpc: number; readonly metrics: number };
}

/**
 * Writes the rendered model repository of both models, executed by an engine in Triton's Python backend.
 *
 * @param weights - ONNX file of the image tower; `u8`: its optimised file with pixel input.
 */
export async function writeEngineRepository(
  folder: string,
  engine: EngineName,
  weights: { readonly fp32: string; readonly u8: string },
  { packages, device }: Parts,
): Promise<void> {
  const specs = [openclipVitB32, largeBatchSpec];
  await writeModelRepository(
    specs.map((spec) => ({ spec, files: { image: weights.fp32 }, u8File: weights.u8 })),
    folder,
  );
  for (const spec of specs) {
    for (const modelKind of ["fp32", "u8"] as const) {
      const model = join(folder, tritonModelName(spec, modelKind));
      const path = join(model, "config.pbtxt");
      const parameters = {
        engine,
        device,
        // PyTorch normalises pixels itself
        model_file: modelKind === "u8" && engine === "onnxruntime" ? weights.u8 : weights.fp32,
        folder: dirname(fileURLToPath(import.meta.url)),
        packages,
      };
      const text = (await readFile(path, "utf8")).replace(
        'platform: "onnxruntime_onnx"',
        'backend: "python"',
      );
      const group = device === "cuda" ? "kind: KIND_GPU, gpus: [0]" : "kind: KIND_CPU";
      const own = Object.entries(parameters).map(
        ([key, value]) => `parameters { key: "${key}" value { string_value: "${value}" } }`,
      );
      await writeFile(
        path,
        `${text}\ninstance_group [ { count: 1, ${group} } ]\n${own.join("\n")}\n`,
      );
      const file = fileURLToPath(new URL("model.py", import.meta.url));
      await symlink(file, join(model, "1", "model.py"));
    }
  }
  // models of other engines, such as TensorRT
  const kept = specs.flatMap((spec) => [
    tritonModelName(spec, "fp32"),
    tritonModelName(spec, "u8"),
  ]);
  for (const name of await readdir(folder)) {
    if (!kept.includes(name)) rmSync(join(folder, name), { recursive: true, force: true });
  }
}

/** @param log - File for its log. */
export async function startTriton(
  repository: string,
  log: string,
  { triton, device }: Parts,
  signal: AbortSignal,
): Promise<Server> {
  const [http = 0, grpc = 0, metrics = 0] = await freePorts(3);
  return start(
    "tritonserver",
    { http, grpc, metrics },
    `http://127.0.0.1:${http}/v2/health/ready`,
    signal,
    {
      command: [join(triton, "bin", "tritonserver")],
      args: [
        `--model-repository=${repository}`,
        "--disable-auto-complete-config",
        "--strict-readiness=true",
        "--exit-on-error=true",
        ...["http", "grpc", "metrics"].map((name) => `--${name}-address=127.0.0.1`),
        `--http-port=${http}`,
        `--grpc-port=${grpc}`,
        `--metrics-port=${metrics}`,
        `--allow-gpu-metrics=${device === "cuda"}`,
        "--exit-timeout-secs=5",
        `--log-file=${log}`,
        `--backend-config=python,shm-region-prefix-name=clipstack-${http}-`,
      ],
      env: {},
    },
  );
}

/** Gateway: decodes images and sends their pixels to a Triton server. */
export async function startGateway(triton: Server, signal: AbortSignal): Promise<Server> {
  const [http = 0] = await freePorts(1);
  const env: Partial<Record<ServerEnvName, string>> = {
    HOST: "127.0.0.1",
    PORT: String(http),
    LOG_LEVEL: "warn",
    BACKEND: "triton",
    ...modelSettings(defaultModels),
    TRITON_GRPC_URLS: `127.0.0.1:${triton.ports.grpc}`,
    TRITON_MODEL_KIND: "u8",
    // 128 clients with 32 images each
    MAX_QUEUE_SIZE: "4096",
  };
  const command = [
    process.execPath,
    "--import",
    import.meta.resolve("tsx"),
    join(project, "inference-image/main.ts"),
  ];
  return start(
    "gateway",
    { http, grpc: 0, metrics: 0 },
    `http://127.0.0.1:${http}/readyz`,
    signal,
    {
      command: withLifeline(command),
      args: [],
      env,
    },
  );
}

/** FastAPI service with PyTorch. */
export async function startBaseline(
  weights: string,
  { python, packages, device }: Parts,
  signal: AbortSignal,
): Promise<Server> {
  const [http = 0] = await freePorts(1);
  return start(
    "PyTorch baseline",
    { http, grpc: 0, metrics: 0 },
    `http://127.0.0.1:${http}/readyz`,
    signal,
    {
      command: [python, "-B", join(project, "bench/baselines/pytorch/serve.py")],
      args: [],
      env: {
        PYTHONPATH: packages,
        DEVICE: device,
        MODEL_NAME: openclipVitB32.name,
        MODEL_PATH: weights,
        PORT: String(http),
        END_WITH_PARENT: "true",
      },
    },
  );
}

/** Time for the import of PyTorch and the load of a model. */
const startSeconds = 240;

async function start(
  name: string,
  ports: Server["ports"],
  readyUrl: string,
  signal: AbortSignal,
  options: Parameters<typeof startChild>[0],
): Promise<Server> {
  const child = startChild(options);
  const outcome = await waitUntilReady(child, readyUrl, startSeconds, signal);
  if (outcome.ok) return { child, ports, readyMs: outcome.readyMs };
  await child.stop(1);
  throw new UserError(`${name} ${outcome.message}`);
}
