import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { fileURLToPath } from "node:url";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";

const main = fileURLToPath(new URL("../main.ts", import.meta.url));

/** For tests: a Triton emulator in a process of its own, at ports that stay the same over restarts. */
export interface TritonProcess {
  /** `127.0.0.1:port` of its gRPC. */
  readonly target: string;
  /** Resolves when it takes requests. */
  start(): Promise<void>;
  /** SIGKILL; resolves when it is gone. */
  kill(): Promise<void>;
  signal(name: NodeJS.Signals): void;
  /** What it wrote to stderr and stdout, of all its runs. */
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

/** A port of 127.0.0.1 where nobody listened a moment ago. */
async function freePort(): Promise<number> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  return typeof address === "object" && address !== null ? address.port : 0;
}
