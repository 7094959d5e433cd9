import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import {
  copyFile,
  mkdir,
  mkdtemp,
  readdir,
  readFile,
  rm,
  symlink,
  writeFile,
} from "node:fs/promises";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { openHttpTransport } from "./http-transport.ts";
import { ciScript } from "./test-python.ts";

/**
 * Real `tritonserver`, `perf_analyzer` and Python with `tritonclient`, for tests: from the folder `CLIPSTACK_REAL_TRITON`, or
 * installed by `.ci/real-triton`.
 */
const { CLIPSTACK_REAL_TRITON } = process.env;
const { path: home, missing } =
  CLIPSTACK_REAL_TRITON === undefined
    ? await ciScript("real-triton")
    : { path: CLIPSTACK_REAL_TRITON, missing: "" };

/** Reason why no real Triton server is available; otherwise empty. */
export const realTritonMissing = missing;

export function realTritonProgram(name: "tritonserver" | "perf_analyzer" | "python"): string {
  return join(home, "bin", name);
}

export interface RealTriton {
  readonly url: string;
  readonly httpTarget: string;
  readonly grpcTarget: string;
  /** Ports of HTTP, gRPC and metrics, which another Triton server can use after this one has stopped. */
  readonly ports: readonly number[];
  readonly process: ChildProcess;
  readonly output: string;
  stop(): Promise<void>;
}

/**
 * Starts Triton on 127.0.0.1 and waits until it is ready.
 *
 * @param repository - Models of the ONNX Runtime backend are changed to the Python backend, the only one in PyPI's package.
 * @param options - `prefix`: program that starts Triton, such as `taskset`. `onnxRuntime`: how ONNX files are executed; `python`: by
 *   the Python backend, with a program in version 1, `emulated`: by a Python program in place of the ONNX Runtime backend, so that the
 *   repository is unchanged and versions can be added to it.
 */
export async function startRealTriton(
  repository: string,
  {
    flags = [] as readonly string[],
    ports = undefined as readonly number[] | undefined,
    prefix = [] as readonly string[],
    env = {} as NodeJS.ProcessEnv,
    onnxRuntime = "python" as "python" | "emulated",
  } = {},
): Promise<RealTriton> {
  if (onnxRuntime === "python") await usePythonBackend(repository);
  const backends = onnxRuntime === "emulated" ? await emulatedBackends() : undefined;
  const used = ports ?? (await freePorts(3));
  const [http, grpc, metrics] = used;
  const [program = "", ...prefixed] = [...prefix, realTritonProgram("tritonserver")];
  const child = spawn(
    program,
    [
      ...prefixed,
      `--model-repository=${repository}`,
      "--disable-auto-complete-config",
      ...["http", "grpc", "metrics"].map((name) => `--${name}-address=127.0.0.1`),
      `--http-port=${http}`,
      `--grpc-port=${grpc}`,
      `--metrics-port=${metrics}`,
      "--allow-gpu-metrics=false",
      "--exit-timeout-secs=1",
      `--backend-config=python,shm-region-prefix-name=clipstack-${http}-`,
      ...(backends === undefined ? [] : [`--backend-directory=${backends}`]),
      ...flags,
    ],
    { stdio: ["ignore", "pipe", "pipe"], env: { ...process.env, ...env } },
  );
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (chunk: Buffer) => {
      output += chunk.toString();
    });
  }
  const stop = async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    const exited = once(child, "exit");
    child.kill("SIGTERM");
    const timer = setTimeout(() => child.kill("SIGKILL"), 20_000);
    await exited;
    clearTimeout(timer);
    if (backends !== undefined) await rm(backends, { recursive: true });
  };
  const url = `http://127.0.0.1:${http}`;
  const transport = openHttpTransport({ url });
  try {
    for (let waited = 0; !(await transport.ready(undefined, { timeoutMs: 1_000 })); waited += 1) {
      if (child.exitCode !== null || child.signalCode !== null || waited > 600) {
        await stop();
        throw new Error(`tritonserver is not ready:\n${output.slice(-12_000)}`);
      }
      await sleep(100);
    }
  } finally {
    await transport.close();
  }
  return {
    url,
    httpTarget: `127.0.0.1:${http}`,
    grpcTarget: `127.0.0.1:${grpc}`,
    ports: used,
    process: child,
    get output() {
      return output;
    },
    stop,
  };
}

const backend = fileURLToPath(new URL("./test-onnx-backend.py", import.meta.url));

/** Folder of backends with the Python backend, and an ONNX Runtime backend in Python. */
async function emulatedBackends(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-backends-"));
  await symlink(join(home, "backends", "python"), join(folder, "python"));
  await mkdir(join(folder, "onnxruntime"));
  await copyFile(backend, join(folder, "onnxruntime", "model.py"));
  return folder;
}

async function usePythonBackend(repository: string): Promise<void> {
  for (const model of await readdir(repository)) {
    const folder = join(repository, model);
    const files = await readdir(folder, { recursive: true });
    for (const file of files.filter((name) => name.endsWith(".pbtxt"))) {
      const path = join(folder, file);
      const text = await readFile(path, "utf8");
      const changed = text
        .replace('platform: "onnxruntime_onnx"', 'backend: "python"')
        // of the Python backend it would be the program
        .replace(/^default_model_filename: .*\n/m, "");
      if (changed === text) continue;
      await writeFile(path, changed);
      await copyFile(backend, join(folder, "1", "model.py"));
    }
  }
}

async function freePorts(count: number): Promise<readonly number[]> {
  const servers = Array.from({ length: count }, () => createServer());
  const ports: number[] = [];
  for (const server of servers) {
    server.listen(0, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    ports.push(typeof address === "object" && address !== null ? address.port : 0);
  }
  for (const server of servers) server.close();
  return ports;
}
