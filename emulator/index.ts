import { copyFile, mkdir, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Modality, ModelSpec } from "../contract/model-spec.ts";
import { catalogueNames, modelCatalogue } from "../contract/models/index.ts";
import { defaultSeed, generateModel } from "../model-tools/generate/generate.ts";
import { writeModelRepository } from "../model-tools/repository/repository.ts";
import { localFlags, startTritonEmulator } from "./triton-emulator.ts";

/** Model of an ONNX file. */
export interface OnnxModel {
  /** Name under which the model is served. */
  readonly name: string;
  /** Path of the ONNX file. */
  readonly file: string;
  /**
   * Text of the model's `config.pbtxt`.
   *
   * @default - completed from the ONNX file, as by Triton
   */
  readonly config?: string;
}

export interface TritonEmulatorSettings {
  /**
   * Models to serve: ONNX files; names or specs of embedding models, served with small random weights in each of their
   * configurations; or the path of a Triton model repository.
   */
  readonly models: readonly (OnnxModel | ModelSpec | string)[] | string;
  /**
   * Options of `tritonserver`. The ports are always free ones.
   *
   * @default - none
   */
  readonly args?: readonly string[];
  /**
   * Receives the log lines of the server.
   *
   * @default - discarded
   */
  readonly log?: (line: string) => void;
}

export interface TritonEmulator {
  /** URL of the HTTP protocol, `http://127.0.0.1:port`. */
  readonly httpUrl: string;
  /** Address of the gRPC protocol, `127.0.0.1:port`. */
  readonly grpcAddress: string;
  /** URL of the metrics in Prometheus' text format. */
  readonly metricsUrl: string;
  /** Drains, then removes the files that the emulator has written. */
  close(): Promise<void>;
}

/**
 * Starts a server with Triton's protocols (HTTP, gRPC, metrics) for tests, in this process, on free ports of 127.0.0.1.
 *
 * @throws {Error} one line: the model, option or port, and what is wrong with it
 */
export async function createTritonEmulator(
  settings: TritonEmulatorSettings,
): Promise<TritonEmulator> {
  const { models, args = [], log = () => {} } = settings;
  const isGiven = typeof models === "string";
  const repository = isGiven ? models : await mkdtemp(join(tmpdir(), "triton-emulator-"));
  const remove = async () => {
    if (!isGiven) await rm(repository, { recursive: true });
  };
  try {
    if (!isGiven) await writeModels(models, repository);
    const server = await startTritonEmulator(localFlags(repository, args), { log });
    const { http, grpc, metrics } = server.ports;
    return {
      httpUrl: `http://127.0.0.1:${http}`,
      grpcAddress: `127.0.0.1:${grpc}`,
      metricsUrl: `http://127.0.0.1:${metrics}/metrics`,
      close: async () => {
        await server.stop();
        await remove();
      },
    };
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Writes models to an empty model repository. */
async function writeModels(
  models: readonly (OnnxModel | ModelSpec | string)[],
  folder: string,
): Promise<void> {
  for (const model of models) {
    if (typeof model === "object" && "file" in model) await addOnnxModel(model, folder);
    else await addRandomModel(typeof model === "string" ? specNamed(model) : model, folder);
  }
}

async function addOnnxModel({ name, file, config }: OnnxModel, folder: string): Promise<void> {
  if (!(await stat(file).catch(() => undefined))?.isFile()) {
    throw new Error(`model '${name}': file must be an ONNX file, got '${file}'`);
  }
  await mkdir(join(folder, name, "1"), { recursive: true });
  await copyFile(file, join(folder, name, "1", "model.onnx"));
  if (config !== undefined) await writeFile(join(folder, name, "config.pbtxt"), config);
}

async function addRandomModel(spec: ModelSpec, folder: string): Promise<void> {
  const files: Partial<Record<Modality, string>> = {};
  for (const modality of Object.keys(spec.towers) as Modality[]) {
    const file = join(folder, ".random", `${spec.name}-${modality}.onnx`);
    await generateModel({ spec, modality, profile: "tiny", seed: defaultSeed, file });
    files[modality] = file;
  }
  await writeModelRepository([{ spec, files }], folder);
}

function specNamed(name: string): ModelSpec {
  const spec = modelCatalogue.get(name);
  if (spec !== undefined) return spec;
  throw new Error(
    `models must be files, specs or one of ${catalogueNames.join(", ")}, got '${name}'`,
  );
}
