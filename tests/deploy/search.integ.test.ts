import { cp, mkdir, readFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { freePorts } from "../../artefact/free-ports.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { embedResponse } from "../../contract/embed-api.ts";
import {
  configuredFingerprint,
  fingerprintOf,
  preprocessingSha256,
} from "../../contract/fingerprint.ts";
import type { ModelConfig } from "../../contract/model-config.ts";
import type { Modality } from "../../contract/model-spec.ts";
import { modelCatalogue } from "../../contract/models/index.ts";
import { elementCount, type Fp32Tensor } from "../../contract/tensor.ts";
import { tritonModel, tritonModelName } from "../../contract/triton-models.ts";
import { ensureTinyModel, generateModel } from "../../model-tools/generate/generate.ts";
import { weightsIdentity } from "../../model-tools/repository/fingerprint.ts";
import { testDocker } from "./test-docker.ts";
import { isReady } from "./test-load.ts";
import { builtImage, type TestProject, testProject, tritonPortsOf } from "./test-project.ts";

/** `environments/search.yaml` on the CPU with tiny weights: three models, one of them with texts, on one host. */

const { docker, missing } = await testDocker();
const file = (path: string) => fileURLToPath(new URL(`../../${path}`, import.meta.url));
const photo = await readFile(file("model-tools/samples/dunes.jpg"));
const search = parse(await readFile(file("environments/search.yaml"), "utf8"));
const specs = (search.models as string[]).map((name) => modelCatalogue.get(name)!);
const towers = specs.flatMap((spec) =>
  (Object.keys(spec.towers) as Modality[]).map((modality) => ({
    spec,
    modality,
    folder: tritonModelName(spec, modality === "image" ? "fp32" : "text"),
  })),
);

describe.skipIf(missing !== "")(`search, deployed${missing && ` (skipped: ${missing})`}`, () => {
  let project: TestProject;
  let embedUrl: string;
  let tritonUrl: string;

  beforeAll(async () => {
    project = await testProject({ docker });
    for (const { spec, modality, folder } of towers) {
      const path = join(project.folder, "model_repository", folder, "1/model.onnx");
      await mkdir(dirname(path), { recursive: true });
      await cp(await ensureTinyModel(spec, modality), path);
    }
    const [port, triton] = (await freePorts(2)) as [number, number];
    embedUrl = `http://127.0.0.1:${port}`;
    tritonUrl = `http://127.0.0.1:${triton}`;
    const { stack: _, ...settings } = search;
    await project.settings("search", {
      ...settings,
      // absolute, because doctor's own checkout has other files
      modelRepository: join(project.folder, "model_repository"),
      accelerator: "cpu",
      host: { docker: docker.endpoint },
      network: "clipstack-test-search",
      embed: { port, image: builtImage() },
      tritonOnnx: { server: "emulator", ports: tritonPortsOf(triton), modelVersions: 1 },
      tritonTrt: { enabled: false },
    });
  });
  afterAll(() => project?.remove());

  test("cdktf deploy fills a volume per tower and succeeds once every service is ready", async () => {
    const { code, output } = await project.deploy("search");
    expect(code, output).toBe(0);
    expect(await isReady(`${embedUrl}/readyz`)).toBe(true);
    const { models, services } = await project.output("search");
    expect(models.map(({ name }) => name)).toEqual(search.models);
    for (const service of services) expect(service.models).toEqual(search.models);
  });

  test.each(towers)("the embed server returns an embedding of $folder", async (tower) => {
    const { spec, modality } = tower;
    const response = await (modality === "image"
      ? fetch(`${embedUrl}/embed?model=${spec.name}`, {
          method: "POST",
          headers: { "content-type": "image/jpeg" },
          body: photo,
        })
      : fetch(`${embedUrl}/embed/text`, {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify({ texts: ["dunes in the desert"], model: spec.name }),
        }));
    const text = await response.text();
    expect(response.status, text).toBe(200);
    const { model, embeddings } = embedResponse.parse(JSON.parse(text));
    expect(model).toBe(spec.name);
    expect(embeddings).toHaveLength(1);
    expect(embeddings[0]).toHaveLength(spec.embedding.width);
    expect(Math.hypot(...embeddings[0]!)).toBeCloseTo(1, 3);
  });

  test.each(towers)("Triton serves $folder", async ({ folder }) => {
    expect(await isReady(`${tritonUrl}/v2/models/${folder}/ready`)).toBe(true);
  });

  test("an unknown model is rejected with the served ones", async () => {
    const response = await fetch(`${embedUrl}/embed?model=vit`, {
      method: "POST",
      headers: { "content-type": "image/jpeg" },
      body: photo,
    });
    expect(response.status).toBe(404);
    const text = await response.text();
    for (const { name } of specs) expect(text).toContain(name);
  });

  test("a new version of a model takes over without a lost request", async () => {
    const spec = modelCatalogue.get("dinov2-small")!;
    const { name: model, inputs } = tritonModel(spec, "fp32");
    const weights = join(project.folder, "new.onnx");
    await generateModel({ spec, profile: "tiny", seed: 7, file: weights });
    const transport = openHttpTransport({ url: tritonUrl });
    const [{ name, dims }] = inputs;
    const data = new Float32Array(elementCount(dims)).fill(0.5);
    const image = { name, dataType: "FP32", shape: [1, ...dims], data } as const;
    const embed = async () => {
      const [output] = await transport.infer(model, [image], { timeoutMs: 20_000 });
      return [...(output as Fp32Tensor).data];
    };
    const first = await embed();
    const failures: unknown[] = [];
    let deploying = true;
    const client = (async () => {
      while (deploying) await embed().catch((error) => failures.push(error));
    })();
    const args = ["model", "deploy", spec.name, "--file", weights, "--environment", "search"];
    const { code, stdout, output } = await project.clipstack(...args, "--json");
    deploying = false;
    await client;
    expect(code, output).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      environment: "search",
      version: "2",
      served: ["2"],
      unchanged: ["embed"],
      probes: [{ target: "triton-onnx", failed: 0 }],
    });
    expect(failures).toEqual([]);
    expect(await embed()).not.toEqual(first);
    const served = await fetch(`${tritonUrl}/v2/models/${model}/config`);
    expect(configuredFingerprint((await served.json()) as ModelConfig, ["2"])).toBe(
      fingerprintOf(preprocessingSha256(spec, "image"), await weightsIdentity(weights)),
    );
    await transport.close();
  });

  test("a second deploy plans no change", async () => {
    expect(await project.plan("search")).toEqual([]);
  });
});
