import { type RunningEmbedServer, startEmbedServer } from "./embed-server.ts";
import { readSettings } from "./settings.ts";

type Env = Readonly<Record<string, string>>;

/** Starts an embed server on the loopback interface, by default on a free port, without waiting for its models. */
export async function startLoading(env: Env = {}): Promise<RunningEmbedServer> {
  const settings = readSettings({ HOST: "127.0.0.1", LOG_LEVEL: "silent", ...env });
  return await startEmbedServer(env.PORT === undefined ? { ...settings, PORT: 0 } : settings);
}

/** Starts an embed server as {@link startLoading}, and waits until its models are loaded. */
export async function startLoaded(env: Env = {}): Promise<RunningEmbedServer> {
  const server = await startLoading(env);
  await server.loaded;
  return server;
}
