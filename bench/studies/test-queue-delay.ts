import { onTestFinished } from "vitest";
import { deployedModelConfig } from "../../contract/deployed-model-config.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { ResolvedTritonFlags } from "../../contract/triton-flags.ts";
import { tritonModel } from "../../contract/triton-models.ts";
import { testRepository } from "../../emulator/test-repository.ts";
import { startTritonEmulator } from "../../emulator/triton-emulator.ts";

/** Model whose queue delay the tests change. */
export const queueModel = tritonModel(defaultModel, "fp32");

/** Starts a Triton server that serves the model until the test ends, and returns its URL. */
export async function startQueueServer(flags: Partial<ResolvedTritonFlags> = {}): Promise<string> {
  const { name } = queueModel;
  const { text } = deployedModelConfig({ spec: defaultModel, modelKind: "fp32" }, 1);
  const repository = await testRepository({ [`${name}/configs/deployed.pbtxt`]: text });
  onTestFinished(() => repository.remove());
  const server = await startTritonEmulator(
    repository.flags({
      "model-config-name": "deployed",
      "model-control-mode": "explicit",
      "load-model": [name],
      "allow-metrics": false,
      ...flags,
    }),
    { log: () => {} },
  );
  onTestFinished(() => server.stop());
  return `http://127.0.0.1:${server.ports.http}`;
}

export async function configOf(url: string) {
  const answer = await fetch(`${url}/v2/models/${queueModel.name}/config`);
  return (await answer.json()) as { readonly dynamic_batching: Record<string, unknown> };
}

export const delayOf = async (url: string) =>
  (await configOf(url)).dynamic_batching.max_queue_delay_microseconds;
