import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ModelSpec } from "../../contract/model-spec.ts";
import { modelSettings } from "../../contract/server/model-list.ts";
import { repositoryAt } from "../../emulator/test-repository.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { writeTestRepository } from "../models/test-text-model.ts";
import type { RunningEmbedServer } from "../server/embed-server.ts";
import { startLoaded } from "../server/test-embed-server.ts";

export interface TestTriton {
  readonly ports: RunningTritonEmulator["ports"];
  /** Model repository with tiny models, removed by `stop`. */
  readonly folder: string;
  stop(): Promise<void>;
}

/**
 * Starts a Triton emulator with tiny models on free ports of the loopback interface.
 *
 * @param prepare - Changes the model repository before the start.
 */
export async function startTestTriton(
  specs: readonly ModelSpec[],
  prepare: (folder: string) => Promise<void> = async () => {},
): Promise<TestTriton> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-gateway-"));
  await writeTestRepository(folder, specs);
  await prepare(folder);
  const emulator = await startTritonEmulator(repositoryAt(folder).flags(), { log: () => {} });
  return {
    ports: emulator.ports,
    folder,
    async stop() {
      await emulator.stop();
      await rm(folder, { recursive: true, force: true });
    },
  };
}

/** Starts a gateway to a Triton server on a free port of the loopback interface. */
export async function startGateway(
  { ports }: Pick<TestTriton, "ports">,
  specs: readonly ModelSpec[],
  env: Readonly<Record<string, string>> = {},
): Promise<RunningEmbedServer> {
  const gateway = await startLoaded({
    ...modelSettings(specs),
    BACKEND: "triton",
    TRITON_GRPC_URLS: `127.0.0.1:${ports.grpc}`,
    ...env,
  });
  return gateway;
}
