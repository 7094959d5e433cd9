import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { openGrpcTransport } from "../client/triton/grpc-transport.ts";
import { openHttpTransport } from "../client/triton/http-transport.ts";
import type { Transport } from "../client/triton/transport.ts";
import { deployedModelConfig } from "../contract/deployed-model-config.ts";
import { imageTowerOf, normalisedImage } from "../contract/model-shapes.ts";
import { defaultModel } from "../contract/models/index.ts";
import { elementCount, type Fp32Tensor } from "../contract/tensor.ts";
import type { ResolvedTritonFlags } from "../contract/triton-flags.ts";
import { tritonModelName } from "../contract/triton-models.ts";
import { type TestRepository, testRepository } from "./test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "./triton-emulator.ts";

const imageElements = elementCount(normalisedImage(imageTowerOf(defaultModel)).dims);

/** Mounts as in a deployment: the configuration and the model version. */
const model = tritonModelName(defaultModel, "fp32");
const file = `${model}/configs/deployed.pbtxt`;
const textOf = (maxQueueDelayMicroseconds: number) =>
  deployedModelConfig({ spec: defaultModel, modelKind: "fp32" }, 1, {
    maxQueueDelayMicroseconds,
  }).text;

const call = { timeoutMs: 20_000 };
const image: Fp32Tensor = {
  name: "image",
  dataType: "FP32",
  shape: [1, 3, 224, 224],
  data: new Float32Array(imageElements).fill(0.5),
};

let repository: TestRepository;
const cleanUps: (() => unknown)[] = [];
beforeEach(async () => {
  repository = await testRepository({ [file]: textOf(1_000) });
});
afterEach(async () => {
  for (const cleanUp of cleanUps.splice(0).reverse()) await cleanUp();
  await repository.remove();
});

async function start(
  flags: Partial<ResolvedTritonFlags>,
): Promise<{ server: RunningTritonEmulator; transports: readonly Transport[]; load: Load }> {
  const server = await startTritonEmulator(
    repository.flags({ "model-config-name": "deployed", ...flags }),
    { log: () => {} },
  );
  cleanUps.push(() => server.stop());
  const url = `http://127.0.0.1:${server.ports.http}`;
  const transports = [
    openHttpTransport({ url }),
    openGrpcTransport({ target: `127.0.0.1:${server.ports.grpc}` }),
  ];
  cleanUps.push(() => Promise.all(transports.map((transport) => transport.close())));
  const load = async () => {
    const response = await fetch(`${url}/v2/repository/models/${model}/load`, { method: "POST" });
    return { status: response.status, text: await response.text() };
  };
  return { server, transports, load };
}
type Load = () => Promise<{ readonly status: number; readonly text: string }>;

const delayOf = async (transport: Transport | undefined) => {
  const { dynamic_batching: batching } = (await transport!.modelConfig(model, call)) as {
    dynamic_batching: { max_queue_delay_microseconds: number };
  };
  return batching.max_queue_delay_microseconds;
};

test("with explicit control, configuration changes under load fail no request", async () => {
  const { server, transports, load } = await start({
    "model-control-mode": "explicit",
    "load-model": [model],
  });
  let changing = true;
  let [answered, notReady] = [0, 0];
  const failures: unknown[] = [];
  const clients = Array.from({ length: 8 }, async (_, index) => {
    const transport = transports[index % transports.length]!;
    while (changing) {
      try {
        await transport.infer(model, [image], call);
        answered += 1;
      } catch (error) {
        failures.push(error);
      }
    }
  });
  const watcher = (async () => {
    while (changing) if (!(await transports[0]!.ready(model, call))) notReady += 1;
  })();

  const duringLoads: number[] = [];
  for (const delay of [0, 2_000, 500, 3_000]) {
    await writeFile(join(repository.path, file), textOf(delay));
    const before = answered;
    expect(await load()).toEqual({ status: 200, text: "" });
    duringLoads.push(answered - before);
    expect(await delayOf(transports[1])).toBe(delay);
  }
  changing = false;
  await Promise.all([...clients, watcher]);

  expect(failures).toEqual([]);
  expect(notReady).toBe(0);
  // the old model answers while the new one warms up
  expect(Math.min(...duringLoads)).toBeGreaterThan(0);
  const metrics = await fetch(`http://127.0.0.1:${server.ports.metrics}/metrics`);
  expect(await metrics.text()).toContain(
    `nv_inference_request_success{model="${model}",version="1"} ${answered}\n`,
  );
});

test("without model control, a load is rejected as by Triton and the initial configuration stays", async () => {
  const { transports, load } = await start({ "model-control-mode": "none" });
  await writeFile(join(repository.path, file), textOf(2_000));
  expect(await load()).toEqual({
    status: 503,
    text: JSON.stringify({
      error: "explicit model load / unload is not allowed if polling is enabled",
    }),
  });
  expect(await delayOf(transports[0])).toBe(1_000);
});
