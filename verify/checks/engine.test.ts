import { mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import { expect, onTestFinished, test } from "vitest";
import { parseArtefact } from "../../artefact/artefact.ts";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import { checkResult } from "../../bench/record/record.ts";
import { deployedModelConfig } from "../../contract/deployed-model-config.ts";
import { engineCacheMount } from "../../contract/model-config.ts";
import { imageTowerOf } from "../../contract/model-shapes.ts";
import { withModalities } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { openService } from "../../target/service/target-service.ts";
import type { CheckContext } from "./check.ts";
import { engineCheck } from "./engine.ts";

const model = "openclip_vit_b32_trt";
const prefix = `aaaa_${model}_fp16_b32`;
const parameters = imageTowerOf(defaultModel).millionParameters * 1e6;

interface Deployed {
  readonly gpus?: number;
  /** Size of each file in the engine cache. */
  readonly files?: Readonly<Record<string, number>>;
  readonly backend?: "onnxruntime" | "tensorrt";
}

/** Runs the check on a server with the configuration of a deployment, whose engine cache is a folder of this machine. */
async function outcome({ gpus = 1, files = {}, backend = "tensorrt" }: Deployed = {}) {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-engines-"));
  onTestFinished(() => rm(folder, { recursive: true }));
  for (const [name, size] of Object.entries(files)) {
    await writeFile(join(folder, name), "");
    await truncate(join(folder, name), Math.round(size));
  }
  const { config } = deployedModelConfig(
    { spec: defaultModel, modelKind: "trt" },
    gpus,
    {},
    {
      ...(gpus > 0 && { engineCachePrefix: "aaaa" }),
    },
  );
  const body = JSON.stringify(config).replaceAll(`${engineCacheMount}/${model}`, folder);
  const server = createServer((request, response) => {
    response.statusCode = request.url === `/v2/models/${model}/config` ? 200 : 404;
    response.end(body);
  }).listen(0, "127.0.0.1");
  onTestFinished(() => void server.close());
  await new Promise((resolve) => server.once("listening", resolve));
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const { workloads } = parseArtefact(JSON.stringify(dockerDocument()), "cdk.tf.json");
  const found = workloads.find((it) => it.service.kind === "triton")!;
  const workload = {
    ...found,
    service: { ...found.service, backend, modelKind: "trt" as const },
  };
  const endpoint = { protocol: "oip-http", url, name: "trt-http" } as const;
  const service = openService(
    "test",
    workload,
    [withModalities(defaultModel, ["image"])],
    [],
    [{ workload, endpoint, url }],
  );
  onTestFinished(() => service.http.close());
  const environment = {
    runInContainer: async (_name: string, [file = "", ...args]: readonly string[]) => {
      const { exitCode, stdout } = await execa(file, args, { reject: false });
      return exitCode === 0 ? stdout.split("\n").filter((line) => line !== "") : undefined;
    },
  };
  const context = { deployment: { environment } } as unknown as CheckContext;
  const results = (await engineCheck.runService?.(service, context)) ?? [];
  for (const result of results) checkResult.parse(result);
  return results.map((result) => `${result.outcome}: ${result.message}`);
}

const engine = (of: string) => `${of}_2068723788287043730_0_sm90.engine`;

test("an engine with two bytes per parameter passes", async () => {
  const files = {
    [engine(prefix)]: 2.1 * parameters,
    // of another optimum, of other weights, and no engine
    [engine(`${prefix}_o8`)]: 4 * parameters,
    [engine(`bbbb_${model}_fp16_b32`)]: 4 * parameters,
    [`${prefix}_2068723788287043730_0_sm90.profile`]: 4 * parameters,
  };
  expect(await outcome({ files })).toEqual([
    `pass: ${model}: the engine has 184 MB, 2.1 bytes per parameter, as expected about 176 MB (FP16)`,
  ]);
});

test("the parts of an engine are added", async () => {
  const name = `${prefix}_2068723788287043730_1_sm90.engine`;
  const files = { [engine(prefix)]: 1.2 * parameters, [name]: parameters };
  expect(await outcome({ files })).toEqual([expect.stringMatching(/^pass: .* 2\.2 bytes per/)]);
});

test("an engine that TensorRT has built in FP32 fails with both sizes", async () => {
  expect(await outcome({ files: { [engine(prefix)]: 4.05 * parameters } })).toEqual([
    `fail: ${model}: the engine must have about 176 MB (FP16), got 356 MB, 4.0 bytes per parameter: TensorRT computes in FP32`,
  ]);
});

test.each<[string, Deployed, string]>([
  ["no engine", {}, `no engine ${prefix}_… is in its cache`],
  [
    "a part of the weights outside TensorRT",
    { files: { [engine(prefix)]: parameters } },
    "the engine must have about 176 MB (FP16) for its precision to show, got 88 MB, 1.0 bytes per parameter",
  ],
  ["a CPU", { gpus: 0 }, "TensorRT does not run it"],
])("with %s, it states that nothing was checked", async (_name, deployed, reason) => {
  expect(await outcome(deployed)).toEqual([`skip: ${model}: not checked: ${reason}`]);
});

test("models without TensorRT have no result", async () => {
  expect(await outcome({ backend: "onnxruntime" })).toEqual([]);
});
