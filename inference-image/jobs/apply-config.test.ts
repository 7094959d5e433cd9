import { spawn } from "node:child_process";
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import type { RequestListener } from "node:http";
import { tmpdir } from "node:os";
import { basename, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { readModelConfig } from "../../client/triton/model-config.ts";
import { deployedModelConfig } from "../../contract/deployed-model-config.ts";
import {
  configuredFingerprint,
  fingerprintOf,
  preprocessingSha256,
} from "../../contract/fingerprint.ts";
import type { ModelConfig } from "../../contract/model-config.ts";
import type { ModelConfigSettings } from "../../contract/model-config-settings.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelControlFlags } from "../../contract/test-model-control.ts";
import type { ResolvedTritonFlags } from "../../contract/triton-flags.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { type TestRepository, testRepository } from "../../emulator/test-repository.ts";
import { startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { listenHttp } from "../../http/test-listener.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { weightsIdentity } from "../../model-tools/repository/fingerprint.ts";
import {
  type ApplyConfigOptions,
  applyConfig,
  configDifference,
  readApplyConfigArguments,
} from "./apply-config.ts";

const model = tritonModelName(defaultModel, "fp32");
const textOf = (settings: ModelConfigSettings = {}) =>
  deployedModelConfig({ spec: defaultModel, modelKind: "fp32" }, 1, settings).text;

let repository: TestRepository;
let uploads: string;
const cleanUps: (() => unknown)[] = [];
beforeEach(async () => {
  repository = await testRepository({ [`${model}/configs/deployed.pbtxt`]: textOf() });
  uploads = await mkdtemp(join(tmpdir(), "clipstack-upload-"));
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  await repository.remove();
  await rm(uploads, { recursive: true, force: true });
});

/** Starts a server with the repository and returns its URL. */
async function start(flags: Partial<ResolvedTritonFlags> = {}): Promise<string> {
  const server = await startTritonEmulator(
    repository.flags({
      "model-config-name": "deployed",
      "model-control-mode": "explicit",
      "load-model": [model],
      "allow-metrics": false,
      ...flags,
    }),
    { log: () => {} },
  );
  cleanUps.push(() => server.stop());
  return `http://127.0.0.1:${server.ports.http}`;
}

/** Starts a server with scripted responses and returns its URL. */
async function fake(listener: RequestListener): Promise<string> {
  const { url, stop } = await listenHttp(listener);
  cleanUps.push(stop);
  return url;
}

const published = () => readFile(join(repository.path, model, "configs", "deployed.pbtxt"), "utf8");

async function apply(text: string, options: Partial<ApplyConfigOptions> = {}): Promise<string> {
  const file = join(uploads, "config.pbtxt");
  await writeFile(file, text);
  return await applyConfig({
    folder: join(repository.path, model, "configs"),
    file,
    name: "deployed",
    model,
    timeoutSeconds: 30,
    ...options,
  });
}

const servedDelay = async (server: string) => {
  const response = await fetch(`${server}/v2/models/${model}/config`);
  const { dynamic_batching } = (await response.json()) as {
    dynamic_batching: { max_queue_delay_microseconds: number };
  };
  return dynamic_batching.max_queue_delay_microseconds;
};

test("a server with model control serves the new configuration without a restart", async () => {
  const server = await start();
  const text = textOf({ maxQueueDelayMicroseconds: 1_234, instancesPerGpu: 2 });
  expect(await apply(text, { server })).toMatch(
    new RegExp(
      `^${model}: deployed\\.pbtxt \\(sha256 [0-9a-f]{12}\\) written, and ${server} serves it after \\d+\\.\\d s without a restart$`,
    ),
  );
  expect(await published()).toBe(text);
  expect(await servedDelay(server)).toBe(1_234);
  // no temporary files remain
  expect(await readdir(join(repository.path, model, "configs"))).toEqual(["deployed.pbtxt"]);
});

test("adds the fingerprint of the weights, which the server then has", async () => {
  const server = await start();
  const weights = {
    file: await tinyModel(),
    preprocessing: preprocessingSha256(defaultModel, "image"),
  };
  await apply(textOf(), { server, weights });
  const fingerprint = fingerprintOf(weights.preprocessing, await weightsIdentity(weights.file));
  const response = await fetch(`${server}/v2/models/${model}/config`);
  const served = (await response.json()) as ModelConfig;
  expect(configuredFingerprint(served, ["1"])).toBe(fingerprint);
  expect(await published()).toContain(fingerprint);
  const missing = apply(textOf(), { weights: { ...weights, file: "/no/model.onnx" } });
  await expect(missing).rejects.toThrow("model file '/no/model.onnx' does not exist");
});

test("the fingerprint is that of the latest version beside version 1", async () => {
  const file = await tinyModel();
  const versions = join(uploads, "versions");
  const weights = { file, preprocessing: preprocessingSha256(defaultModel, "image"), versions };
  const applied = async (version: string) => {
    await apply(textOf(), { weights });
    return configuredFingerprint(readModelConfig(await published(), "deployed.pbtxt"), [version]);
  };
  const expected = async (path: string) =>
    fingerprintOf(weights.preprocessing, await weightsIdentity(path));
  // mount point of version 1
  await mkdir(join(versions, "1"), { recursive: true });
  expect(await applied("1")).toBe(await expected(file));
  await mkdir(join(versions, "2"));
  const second = join(versions, "2", basename(file));
  await writeFile(second, "weights of version 2");
  expect(await applied("2")).toBe(await expected(second));
});

test("the same configuration can be applied again", async () => {
  const server = await start();
  expect(await apply(textOf(), { server })).toContain("serves it");
  expect(await apply(textOf(), { server })).toContain("serves it");
});

test("the file time is current, so that a server reads the file regardless of the upload's time", async () => {
  await apply(textOf({ maxQueueDelayMicroseconds: 7 }));
  const { mtimeMs } = await stat(join(repository.path, model, "configs", "deployed.pbtxt"));
  expect(Math.abs(Date.now() - mtimeMs)).toBeLessThan(60_000);
});

test("restores a configuration that the server rejects and keeps serving the previous one", async () => {
  const server = await start();
  const rejected = textOf().replace(
    "dynamic_batching {",
    "dynamic_batching { preferred_batch_size: [64]",
  );
  await expect(apply(rejected, { server })).rejects.toThrow(
    `${model}: deployed.pbtxt is not served: ${server} rejected it: load failed for model '${model}': dynamic_batching.preferred_batch_size must be 1 to max_batch_size (32), got 64; the previous configuration is restored and served`,
  );
  expect(await published()).toBe(textOf());
  expect(await servedDelay(server)).toBe(0);
});

test("removes a rejected configuration if there was none before", async () => {
  const server = await start();
  await rm(join(repository.path, model, "configs", "deployed.pbtxt"));
  const rejected = textOf().replace(
    "dynamic_batching {",
    "dynamic_batching { preferred_batch_size: [64]",
  );
  await expect(apply(rejected, { server })).rejects.toThrow(
    /; there was no previous configuration$/,
  );
  expect(await readdir(join(repository.path, model, "configs"))).toEqual([]);
});

test("a server that starts later reads the configuration", async () => {
  const text = textOf({ maxQueueDelayMicroseconds: 42 });
  const server = "http://no-such-container.invalid:8000";
  expect(await apply(text, { server })).toMatch(
    /written; http:\/\/no-such-container\.invalid:8000 does not exist yet and reads it at its start$/,
  );
  expect(await servedDelay(await start())).toBe(42);
});

test("without --server no request is sent", async () => {
  expect(await apply(textOf())).toMatch(/ written$/);
});

test("a server without model control keeps its configuration until a restart", async () => {
  const server = await start({ "model-control-mode": "none" });
  const text = textOf({ maxQueueDelayMicroseconds: 42 });
  expect(await apply(text, { server })).toContain(
    `; ${server} has model control 'none' and reads it at its next start`,
  );
  expect(await published()).toBe(text);
  expect(await servedDelay(server)).toBe(0);
});

test("a server with restricted model control loads it only with the right key", async () => {
  const server = await start(modelControlFlags("right"));
  const text = textOf({ maxQueueDelayMicroseconds: 42 });
  expect(await apply(text, { server, key: "other" })).toContain(
    `; ${server} has another key and reads it at its next start`,
  );
  expect(await servedDelay(server)).toBe(0);
  expect(await apply(text, { server, key: "right" })).toContain("without a restart");
  expect(await servedDelay(server)).toBe(42);
});

test("waits for a server that listens later", async () => {
  const closed = await fake(() => {});
  await cleanUps.pop()?.();
  const { port } = new URL(closed);
  const applied = apply(textOf({ maxQueueDelayMicroseconds: 42 }), { server: closed });
  const late = setTimeout(() => void start({ "http-port": Number(port) }), 1_000);
  cleanUps.push(() => clearTimeout(late));
  expect(await applied).toContain("serves it after");
});

test("fails after the timeout if no server starts, and leaves the new configuration", async () => {
  const server = await fake(() => {});
  await cleanUps.pop()?.();
  const text = textOf({ maxQueueDelayMicroseconds: 42 });
  await expect(apply(text, { server, timeoutSeconds: 1 })).rejects.toThrow(
    `written, but ${server} did not respond in 1 s`,
  );
  expect(await published()).toBe(text);
});

describe("a server that will be replaced", () => {
  test("receives no request if its image, weights or GPUs change", async () => {
    const server = await start();
    const first = await apply(textOf({ maxQueueDelayMicroseconds: 1_000 }), {
      server,
      generation: "a",
    });
    expect(first).toContain("is being replaced and reads it at its next start");
    expect(await servedDelay(server)).toBe(0);
    expect(await published()).toContain("max_queue_delay_microseconds: 1000");
  });

  test("receives a request if only its configuration changes", async () => {
    const server = await start();
    await apply(textOf(), { server, generation: "a" });
    const second = await apply(textOf({ maxQueueDelayMicroseconds: 2_000 }), {
      server,
      generation: "a",
    });
    expect(second).toContain("without a restart");
    expect(await servedDelay(server)).toBe(2_000);
    const third = await apply(textOf(), { server, generation: "b" });
    expect(third).not.toContain("without a restart");
    expect(await servedDelay(server)).toBe(2_000);
  });
});

describe("fails after the timeout and restores the previous configuration if the server", () => {
  const longer = textOf({ maxQueueDelayMicroseconds: 42 });

  test("accepts the call and never responds", async () => {
    const server = await fake(() => {});
    await expect(apply(longer, { server, timeoutSeconds: 1 })).rejects.toThrow(
      `${server} did not finish in 1 s; the previous configuration is restored, but may not be served: `,
    );
    expect(await published()).toBe(textOf());
  });

  test("reports the model as loaded but is never ready", async () => {
    const server = await fake(({ url = "" }, response) => {
      response.statusCode = url.endsWith("/load") ? 200 : 400;
      response.end();
    });
    await expect(apply(longer, { server, timeoutSeconds: 1 })).rejects.toThrow(
      "did not finish in 1 s",
    );
  });

  test("reports the model as loaded but with another configuration", async () => {
    const kept = readModelConfig(textOf(), "kept");
    const server = await fake(({ url = "" }, response) => {
      response.end(url.endsWith("/config") ? JSON.stringify(kept) : "");
    });
    await expect(apply(longer, { server })).rejects.toThrow(
      `${server} loaded the model, but has dynamic_batching.max_queue_delay_microseconds 0, not 42; the previous configuration is restored and served`,
    );
  });

  test("exits during the load", async () => {
    const server = await fake((_request, response) => response.destroy());
    await expect(apply(longer, { server, timeoutSeconds: 1 })).rejects.toThrow(
      /is not served: http:\/\/127\.0\.0\.1:\d+: .*; the previous configuration is restored, but may not be served: /,
    );
  });

  test("is not a Triton server", async () => {
    const server = await fake((_request, response) => {
      response.statusCode = 404;
      response.end("<html>");
    });
    await expect(apply(longer, { server })).rejects.toThrow(
      `${server} rejected it: status 404: <html>; `,
    );
  });
});

describe("does not publish", () => {
  test("a text that is not a model configuration", async () => {
    await expect(apply("name: \n")).rejects.toThrow(/^config\.pbtxt:/);
    expect(await published()).toBe(textOf());
  });

  test("a configuration of another model", async () => {
    await expect(apply(textOf(), { model: "openclip_vit_b32_trt" })).rejects.toThrow(
      "openclip_vit_b32_trt: config.pbtxt: name must be 'openclip_vit_b32_trt', got 'openclip_vit_b32'",
    );
  });

  test("a missing upload", async () => {
    await expect(apply(textOf(), { file: join(uploads, "none") })).rejects.toThrow(
      `${model}: the configuration cannot be read: ENOENT`,
    );
  });

  test("to a missing folder", async () => {
    await expect(apply(textOf(), { folder: join(uploads, "none") })).rejects.toThrow(
      "deployed.pbtxt cannot be written: ENOENT",
    );
  });
});

describe("distinguishes configurations", () => {
  const config = readModelConfig(textOf(), "config");
  const served = (changes: object) => ({ ...config, ...changes });

  test("by deployed settings, ignoring fields added by the server", () => {
    const instance_group = [{ ...config.instance_group[0], name: "g_0", passive: false }];
    expect(configDifference(config, served({ instance_group, extra: 1 }))).toBeUndefined();
  });
  test("with numbers as text", () => {
    const batching = { ...config.dynamic_batching, max_queue_delay_microseconds: "0" };
    expect(configDifference(config, served({ dynamic_batching: batching }))).toBeUndefined();
  });
  test("by instances and by missing fields", () => {
    const instance_group = [{ ...config.instance_group[0], count: 2 }];
    expect(configDifference(config, served({ instance_group }))).toBe(
      "instance_group.0.count 2, not 1",
    );
    expect(configDifference(config, served({ instance_group: [] }))).toContain("instance_group []");
    expect(configDifference(config, {})).toBe("max_batch_size not set, not 32");
    expect(configDifference(config, served({ dynamic_batching: undefined }))).toBe(
      "no dynamic_batching",
    );
  });
  test("by the parameters of an accelerator", () => {
    const of = (settings: ModelConfigSettings) =>
      readModelConfig(
        deployedModelConfig({ spec: defaultModel, modelKind: "trt" }, 1, settings).text,
        "config",
      );
    expect(configDifference(of({ cudaGraphs: true }), of({}))).toContain(
      "trt_cuda_graph_enable not set, not true",
    );
    expect(configDifference(of({}), of({}))).toBeUndefined();
  });
});

test.each(
  Object.entries<readonly string[]>({
    "apply-config: --model must be given; usage: apply-config --folder … --file … --name … --model … [--server …] [--generation …] [--timeout-seconds …]":
      ["--folder=/configs", "--file=/c", "--name=cpu"],
    "apply-config: --name must be a name, got '../cpu'": [
      "--folder=/configs",
      "--file=/c",
      "--name=../cpu",
      "--model=m",
    ],
    "apply-config: --server must be http://host:port, got 'triton:8000'": [
      "--folder=/configs",
      "--file=/c",
      "--name=cpu",
      "--model=m",
      "--server=triton:8000",
    ],
    "apply-config: --timeout-seconds must be 1 to 99999, got '0'": [
      "--folder=/configs",
      "--file=/c",
      "--name=cpu",
      "--model=m",
      "--timeout-seconds=0",
    ],
  }),
)("rejects %s", (message, args) => {
  expect(() => readApplyConfigArguments(args)).toThrow(message);
});

describe("the program", () => {
  async function run(...args: string[]) {
    const main = fileURLToPath(new URL("../main.ts", import.meta.url));
    const child = spawn(process.execPath, ["--import", "tsx", main, ...args]);
    const texts = ["", ""];
    for (const [index, stream] of [child.stdout, child.stderr].entries()) {
      stream.on("data", (chunk: Buffer) => {
        texts[index] += chunk.toString();
      });
    }
    const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
    return { code, stdout: texts[0], stderr: texts[1] };
  }
  const args = () => [
    "apply-config",
    `--folder=${join(repository.path, model, "configs")}`,
    `--file=${join(uploads, "config.pbtxt")}`,
    "--name=deployed",
    `--model=${model}`,
  ];

  test("prints the result in one line and exits with 0", async () => {
    await writeFile(join(uploads, "config.pbtxt"), textOf());
    const { code, stdout, stderr } = await run(...args());
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^openclip_vit_b32: deployed\.pbtxt \(sha256 [0-9a-f]{12}\) written\n$/);
  });

  test("prints the error in one line and exits with 1", async () => {
    const { code, stdout, stderr } = await run(...args());
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^openclip_vit_b32: the configuration cannot be read: .*\n$/);
  });

  test("exits with 2 on invalid arguments", async () => {
    const { code, stdout, stderr } = await run("apply-config", "--server=x");
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(/^apply-config: --folder must be given; usage: .*\n$/);
  });

  test("also checks weights with one line", async () => {
    const { code, stderr } = await run(
      "check-weights",
      `--folder=${uploads}`,
      `--sha256=${"0".repeat(64)}`,
    );
    expect({ code, stderr }).toEqual({
      code: 1,
      stderr: `${join(uploads, "model.onnx")} does not exist\n`,
    });
  });
});
