import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { stringify } from "yaml";

/** Real Prometheus for tests: the program `CLIPSTACK_PROMETHEUS`, or `prometheus` on the PATH, as in Debian's package. */
const { CLIPSTACK_PROMETHEUS: program = "prometheus" } = process.env;

/** Reason why no Prometheus is available; otherwise empty. */
export const prometheusMissing =
  spawnSync(program, ["--version"]).status === 0 ? "" : `no ${program}`;

export interface Sample {
  readonly metric: Readonly<Record<string, string>>;
  readonly value: readonly [time: number, value: string];
}

export interface PrometheusApi {
  readonly url: string;
  /** Data of a response of the HTTP API. @throws {Error} if Prometheus reports an error */
  get(path: string, query?: Readonly<Record<string, string>>): Promise<unknown>;
  query(expression: string): Promise<readonly Sample[]>;
}

export interface Prometheus extends PrometheusApi {
  stop(): Promise<void>;
}

/** HTTP API of a running Prometheus. */
export function prometheusApi(url: string): PrometheusApi {
  const get: PrometheusApi["get"] = async (path, query = {}) => {
    const response = await fetch(`${url}/api/v1/${path}?${new URLSearchParams(query)}`);
    const body = (await response.json()) as { status: string; error?: string; data: unknown };
    if (body.status !== "success") throw new Error(`${body.error}: ${query.query ?? path}`);
    return body.data;
  };
  return {
    url,
    get,
    query: async (expression) =>
      ((await get("query", { query: expression })) as { result: readonly Sample[] }).result,
  };
}

/** Starts Prometheus with a configuration and rule files by name, and waits until it is ready. */
export async function startPrometheus(
  config: object,
  rules: Readonly<Record<string, object>> = {},
): Promise<Prometheus> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-prometheus-"));
  for (const [name, content] of Object.entries(rules))
    await writeFile(join(folder, name), stringify(content));
  await writeFile(
    join(folder, "prometheus.yml"),
    stringify({ ...config, rule_files: Object.keys(rules) }),
  );
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const child = spawn(
    program,
    [
      `--config.file=${folder}/prometheus.yml`,
      `--storage.tsdb.path=${folder}/data`,
      `--web.listen-address=127.0.0.1:${port}`,
    ],
    { stdio: ["ignore", "ignore", "pipe"] },
  );
  let log = "";
  child.stderr.on("data", (chunk) => {
    log += chunk;
  });
  await untilReady(url, child, () => log);
  return {
    ...prometheusApi(url),
    async stop() {
      child.kill();
      if (child.exitCode === null && child.signalCode === null) await once(child, "exit");
      await rm(folder, { recursive: true, force: true });
    },
  };
}

async function untilReady(url: string, child: ChildProcess, log: () => string): Promise<void> {
  while (true) {
    if (child.exitCode !== null) throw new Error(`Prometheus stopped: ${log()}`);
    const response = await fetch(`${url}/-/ready`).catch(() => undefined);
    if (response?.ok) return;
    await sleep(100);
  }
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  server.close();
  await once(server, "close");
  return port;
}
