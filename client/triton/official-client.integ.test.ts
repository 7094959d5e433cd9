import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import protobuf from "protobufjs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { defaultModel } from "../../contract/models/index.ts";
import { elementCount, type Fp32Tensor } from "../../contract/tensor.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { type TestRepository, testRepository } from "../../emulator/test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { openHttpTransport } from "./http-transport.ts";
import { pythonWithTritonClient } from "./test-python.ts";

const fp32Model = tritonModel(defaultModel, "fp32");

/** NVIDIA's Python client from PyPI, unmodified, against this project's server. */
const run = promisify(execFile);
const python = await pythonWithTritonClient();

const batch = 2;
const { width } = defaultModel.embedding;
const image: Fp32Tensor = {
  name: "image",
  dataType: "FP32",
  shape: [batch, ...fp32Model.inputs[0].dims],
  data: Float32Array.from({ length: batch * elementCount(fp32Model.inputs[0].dims) }, (_, index) =>
    Math.sin(index / 50),
  ),
};

interface ClientResults {
  readonly live: boolean;
  readonly ready: boolean;
  readonly modelReady: boolean;
  readonly serverMetadata: { readonly name: string; readonly extensions: readonly string[] };
  readonly modelMetadata: unknown;
  readonly modelConfig: Readonly<Record<string, unknown>>;
  readonly repositoryIndex: unknown;
  readonly infer: Readonly<
    Record<string, { readonly id: string; readonly embedding: readonly (readonly number[])[] }>
  >;
  readonly rejection: string;
  readonly load: string;
  readonly statistics: unknown;
}

describe.skipIf(python.missing !== "")(
  `tritonclient from PyPI${python.missing === "" ? "" : ` (skipped: ${python.missing})`}`,
  () => {
    let repository: TestRepository;
    let server: RunningTritonEmulator;
    let expected: readonly (readonly number[])[];
    let http: ClientResults;
    let grpc: ClientResults & { readonly streamRejection: string };
    let descriptors: Readonly<Record<string, readonly string[]>>;

    beforeAll(async () => {
      repository = await testRepository();
      server = await startTritonEmulator(repository.flags(), { log: () => {} });
      const { ports } = server;

      const transport = openHttpTransport({ url: `http://127.0.0.1:${ports.http}` });
      const [output] = await transport.infer(fp32Model.name, [image], { timeoutMs: 10_000 });
      await transport.close();
      const values = Array.from(output?.data as Float32Array);
      expected = Array.from({ length: batch }, (_, row) =>
        values.slice(row * width, (row + 1) * width),
      );

      const inputFile = join(repository.path, "input.bin");
      await writeFile(inputFile, new Uint8Array(image.data.buffer));
      const { stdout } = await run(
        python.path,
        [
          fileURLToPath(new URL("./test-official-client.py", import.meta.url)),
          `127.0.0.1:${ports.http}`,
          `127.0.0.1:${ports.grpc}`,
          fp32Model.name,
          inputFile,
          String(batch),
        ],
        { maxBuffer: 64 * 1024 * 1024 },
      );
      ({ http, grpc, descriptors } = JSON.parse(stdout));
    });
    afterAll(async () => {
      await server?.stop();
      await repository?.remove();
    });

    const both = [
      { protocol: "HTTP", results: () => http },
      { protocol: "gRPC", results: (): ClientResults => grpc },
    ];

    test.each(both)("gets live and ready over $protocol", ({ results }) => {
      expect(results()).toMatchObject({ live: true, ready: true, modelReady: true });
    });

    test.each(both)("gets the server's and the model's metadata over $protocol", ({ results }) => {
      expect(results().serverMetadata.extensions).toContain("binary_tensor_data");
      // 64-bit integers are strings in protobuf's JSON
      const shape = ["-1", "3", "224", "224"].map((dim) =>
        results() === http ? Number(dim) : dim,
      );
      expect(results().modelMetadata).toMatchObject({
        name: fp32Model.name,
        versions: ["1"],
        platform: "onnxruntime_onnx",
        inputs: [{ name: "image", datatype: "FP32", shape }],
        outputs: [{ name: "embedding", datatype: "FP32" }],
      });
    });

    test.each(both)("gets the model's configuration over $protocol", ({ results }) => {
      const config = results() === http ? http.modelConfig : grpc.modelConfig.config;
      expect(config).toMatchObject({
        name: fp32Model.name,
        max_batch_size: 32,
        input: [{ name: "image", data_type: "TYPE_FP32" }],
        dynamic_batching: { preferred_batch_size: [8, 16, 32] },
      });
    });

    test.each(both)("gets the repository's index over $protocol", ({ results }) => {
      const entries = [{ name: fp32Model.name, version: "1", state: "READY" }];
      expect(results().repositoryIndex).toEqual(results() === http ? entries : { models: entries });
    });

    test.each([
      ...["binary", "json", "binary in, JSON out", "no outputs named", "gzip", "deflate"].map(
        (encoding) => ({ protocol: "HTTP", encoding, results: () => http }),
      ),
      ...["raw", "no outputs named", "gzip", "stream"].map((encoding) => ({
        protocol: "gRPC",
        encoding,
        results: (): ClientResults => grpc,
      })),
    ])(
      "gets the same embedding as this project's client, $protocol: $encoding",
      ({ encoding, results }) => {
        const { id, embedding } = results().infer[encoding]!;
        expect(id).toBe(encoding === "stream" ? "first" : "42");
        expect(embedding).toHaveLength(batch);
        for (const [row, values] of embedding.entries()) {
          expect(values).toHaveLength(width);
          expect(relativeDifference(values, expected[row]!)).toBeLessThan(1e-5);
        }
      },
    );

    test.each(both)("gets statistics that count its requests, $protocol", ({ results }) => {
      const [stats] = (results().statistics as { model_stats: Record<string, string>[] })
        .model_stats;
      expect(Number(stats?.inference_count)).toBe(Number(stats?.execution_count) * batch);
      expect(Number(stats?.execution_count)).toBeGreaterThanOrEqual(
        Object.keys(results().infer).length,
      );
    });

    test("is rejected with Triton's status and message", () => {
      const words = `unexpected inference input 'imagee' for model '${fp32Model.name}'`;
      expect(http.rejection).toBe(`[400] ${words}`);
      expect(grpc.rejection).toBe(`[StatusCode.INVALID_ARGUMENT] ${words}`);
      expect(grpc.streamRejection).toContain(words);
      expect(http.load).toMatch(/^\[503\] explicit model load \/ unload is not allowed/);
      expect(grpc.load).toMatch(/^\[StatusCode\.UNAVAILABLE\] explicit model load \/ unload/);
    });

    test.each(["grpc_service.proto", "model_config.proto"])(
      "has the same messages, fields, numbers and methods in %s",
      (file) => {
        const description = describeProto(file);
        expect(description.length).toBeGreaterThan(100);
        expect(description).toEqual(descriptors[file]);
      },
    );
  },
);

function relativeDifference(actual: readonly number[], expectedValues: readonly number[]): number {
  const norm = (values: readonly number[]) => Math.hypot(...values);
  return norm(actual.map((value, index) => value - expectedValues[index]!)) / norm(expectedValues);
}

/** Returns the lines that `test-official-client.py` prints for the client's descriptors, from this project's `.proto` file. */
function describeProto(file: string): readonly string[] {
  const root = new protobuf.Root();
  const folder = fileURLToPath(new URL("./proto/", import.meta.url));
  root.resolvePath = (_origin, target) => join(folder, target);
  root.loadSync(file, { keepCase: true });
  root.resolveAll();

  const lines: string[] = [];
  const kindOf = (type: string, resolved: protobuf.ReflectionObject | null) => {
    if (resolved === null) return type;
    return `${resolved instanceof protobuf.Enum ? "enum" : "message"} ${resolved.fullName}`;
  };
  const visit = (object: protobuf.ReflectionObject) => {
    if (object.filename !== null && !object.filename.endsWith(file)) return;
    if (object instanceof protobuf.Enum) {
      for (const [name, number] of Object.entries(object.values)) {
        lines.push(`enum ${object.fullName}.${name} = ${number}`);
      }
    } else if (object instanceof protobuf.Service) {
      for (const method of object.methodsArray) {
        method.resolve();
        const python = (value: boolean | undefined) => (value ? "True" : "False");
        lines.push(
          `method ${object.name}.${method.name} ${method.resolvedRequestType?.fullName} ${method.resolvedResponseType?.fullName} ${python(method.requestStream)} ${python(method.responseStream)}`,
        );
      }
    } else if (object instanceof protobuf.Type) {
      for (const field of object.fieldsArray) {
        const start = `field ${object.fullName}.${field.name} = ${field.id}`;
        const type = kindOf(field.type, field.resolvedType);
        if (field instanceof protobuf.MapField) {
          const entry = `${object.fullName}.${entryName(field.name)}`;
          lines.push(
            `${start} repeated message ${entry}`,
            `field ${entry}.key = 1 ${field.keyType}`,
            `field ${entry}.value = 2 ${type}`,
          );
        } else {
          lines.push(
            `${start} ${field.repeated ? "repeated " : ""}${type}${field.partOf ? ` in ${field.partOf.name}` : ""}`,
          );
        }
      }
    }
    if (object instanceof protobuf.Namespace) object.nestedArray.forEach(visit);
  };
  root.nestedArray.forEach(visit);
  return lines.sort();
}

/** Name that protoc gives the entries of a map: `ResponseStatsEntry` for `response_stats`. */
function entryName(field: string): string {
  return `${field.replaceAll(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase())}Entry`;
}
