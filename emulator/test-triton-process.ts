import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { openGrpcTransport } from "../client/triton/grpc-transport.ts";

const main = fileURLToPath(new URL("../inference-image/main.ts", import.meta.url));

/** Triton emulator for tests in a separate process; the ports stay the same across restarts. */
export interface TritonProcess {
  /** gRPC address, `127.0.0.1:port`. */
  readonly target: string;
  /** Resolves when it is ready. */
  start(): Promise<void>;
  /** Sends SIGTERM; resolves when the process has exited. */
  end(): Promise<void>;
  /** Sends SIGKILL; resolves when the process has exited. */
  kill(): Promise<void>;
  signal(name: NodeJS.Signals): void;
  /** Output of all runs on stderr and stdout. */
  readonly output: string;
}

export async function tritonProcess(
  repository: string,
  options: { readonly model: string; readonly flags?: readonly string[] },
): Promise<TritonProcess> {
  const [http, grpc] = [await freePort(), await freePort()];
  const target = `127.0.0.1:${grpc}`;
  let child: ChildProcess | undefined;
  let output = "";
  const flags = [
    `--model-repository=${repository}`,
    ...["http", "grpc", "metrics"].map((name) => `--${name}-address=127.0.0.1`),
    `--http-port=${http}`,
    `--grpc-port=${grpc}`,
    "--allow-metrics=false",
    ...(options.flags ?? []),
  ];
  const gone = async (process: ChildProcess) => {
    if (process.exitCode === null && process.signalCode === null) await once(process, "exit");
  };
  return {
    target,
    get output() {
      return output;
    },
    async start() {
      const started = spawn(process.execPath, ["--import", "tsx", main, "tritonserver", ...flags], {
        stdio: ["ignore", "pipe", "pipe"],
      });
      child = started;
      for (const stream of [started.stdout, started.stderr]) {
        stream.on("data", (chunk: Buffer) => {
          output += chunk.toString();
        });
      }
      const transport = openGrpcTransport({ target });
      try {
        while (!(await transport.ready(options.model, { timeoutMs: 500 }))) {
          if (started.exitCode !== null) throw new Error(`the server ended: ${output}`);
          await new Promise((resolve) => setTimeout(resolve, 100));
        }
      } finally {
        await transport.close();
      }
    },
    async end() {
      if (child === undefined) return;
      child.kill("SIGTERM");
      await gone(child);
    },
    async kill() {
      if (child === undefined) return;
      child.kill("SIGKILL");
      await gone(child);
    },
    signal(name) {
      child?.kill(name);
    },
  };
}

/** Returns a port of 127.0.0.1 that is currently free. */
async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address !== null ? address.port : 0;
}
