import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { writeTestRepository } from "../models/test-text-model.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { startLoaded } from "../server/test-embed-server.ts";

const { image } = defaultModel.towers;
const imagesOnly = { ...defaultModel, towers: { image }, sources: {} };

/** Spec of a model without a text tower. */
export const photoModel: ModelSpec = { ...imagesOnly, name: "photos" };

/** Spec of a model whose embeddings can be truncated. */
export const truncatableModel: ModelSpec = {
  ...imagesOnly,
  name: "truncatable",
  embedding: { ...defaultModel.embedding, truncatableTo: [64, 256] },
};

/** Starts an embed server with tiny models on a free port of the loopback interface. */
export async function startOpenAiServer(
  specs: readonly ModelSpec[],
  env: Readonly<Record<string, string>> = {},
): Promise<RunningEmbedServer> {
  const repository = await mkdtemp(join(tmpdir(), "clipstack-openai-"));
  await writeTestRepository(repository, specs);
  const server = await startLoaded({
    MODEL_REPOSITORY: repository,
    ...modelSettings(specs),
    ...env,
  });
  return server;
}
