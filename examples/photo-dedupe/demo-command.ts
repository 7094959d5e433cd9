import { type ChildProcess, spawn } from "node:child_process";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:net";
import { platform, tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { type Command, Option } from "commander";
import { openInferenceClient } from "../../inference-image/src/client/inference-client.ts";
import { embedPaths } from "../../inference-image/src/contract/embed-paths.ts";
import { uiPorts } from "../../inference-image/src/contract/ports.ts";
import { integerOf, untilInterrupt, withDatabase } from "./command-options.ts";
import { DedupeError } from "./dedupe-error.ts";
import { embed } from "./embed.ts";
import { embedText } from "./embed-command.ts";
import { evaluate } from "./evaluate.ts";
import { evaluateText } from "./evaluate-command.ts";
import { group } from "./group.ts";
import { groupText } from "./group-command.ts";
import { makePhotos } from "./make-photos.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { openProgress, type Progress } from "./progress.ts";
import { serveReview } from "./review-command.ts";
import { scan } from "./scan.ts";
import { scanText } from "./scan-command.ts";

interface DemoArguments {
  readonly model: string;
  readonly port: number;
  readonly open: boolean;
  readonly exit: boolean;
}

const commandLine = fileURLToPath(new URL("../../stacks/cli/clipstack.mjs", import.meta.url));

/** A server that makes its model first takes this long at most. */
const startTimeoutMs = 300_000;

/** `clipstack-dedupe demo` */
export function registerDemo(program: Command): void {
  program
    .command("demo")
    .description("all steps on painted photos, with a server of its own; about a minute")
    .addOption(
      new Option(
        "--model <model>",
        "tiny, generated or an ONNX file, as clipstack serve has it",
      ).default("generated"),
    )
    .option(
      "--port <port>",
      "of the review page; 0 takes a free one",
      integerOf(0, 65_535),
      uiPorts.demo,
    )
    .option("--no-open", "do not open a browser")
    .option("--exit", "end after the figures, without the review page", false)
    .addHelpText(
      "after",
      `
Photos and database are in a temporary folder, which is removed at the end.

Example:
  $ npm run demo:dedupe -- --no-open`,
    )
    .action((args: DemoArguments) => untilInterrupt((signal) => demo(args, signal)));
}

async function demo(args: DemoArguments, signal: AbortSignal): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-dedupe-"));
  const photos = join(folder, "photos");
  const progress = openProgress();
  const step = (text: string) => console.log(`\n# ${text}`);
  const tell = (lines: readonly string[]) => {
    for (const line of lines) console.log(line);
  };
  // the model loads while the photos are painted
  const server = await startServer(args.model);
  try {
    step("clipstack-dedupe make-photos");
    const labels = await makePhotos(photos, (done, total) =>
      progress.update(() => `${done} of ${total} views painted`),
    );
    progress.end();
    console.log(`${labels.length} photos`);
    if (signal.aborted) return;
    await withDatabase(
      join(folder, "photos.db"),
      async (database) => {
        step("clipstack-dedupe scan");
        tell(scanText(await scan(database, { folder: photos, progress, signal })));
        step(`clipstack-dedupe embed --mode remote --url ${server.url}`);
        await server.ready(signal);
        tell(await embedAll(database, server.url, progress, signal));
        if (signal.aborted) return;
        step("clipstack-dedupe evaluate");
        const result = await evaluate(database, photos);
        tell(evaluateText(result));
        const threshold = result.embedding?.best.limit ?? 1;
        step(`clipstack-dedupe group --threshold ${threshold} --linkage complete`);
        const grouped = await group(database, {
          by: "embedding",
          threshold,
          distance: 0,
          linkage: "complete",
          method: "auto",
          progress,
        });
        tell(groupText(grouped, false));
        await server.stop();
        if (args.exit || signal.aborted) return;
        step("clipstack-dedupe review --demo");
        await serveReview(database, {
          port: args.port,
          demo: true,
          signal,
          onListening: (url) => {
            console.log(`review page: ${url} (Ctrl-C ends it)`);
            if (args.open) openBrowser(url);
          },
        });
      },
      { missing: "create" },
    );
  } finally {
    await server.stop();
    await rm(folder, { recursive: true, force: true });
  }
}

async function embedAll(
  database: PhotoDatabase,
  url: string,
  progress: Progress,
  signal: AbortSignal,
): Promise<readonly string[]> {
  const client = await openInferenceClient({
    backend: "embed",
    mode: "remote",
    serviceUrl: url,
    timeoutMs: 120_000,
  });
  try {
    const where = `embed at ${url}`;
    return embedText(
      await embed(database, { client, where, otherModel: "refuse", progress, signal }),
    );
  } finally {
    await client.close();
  }
}

interface DemoServer {
  readonly url: string;
  /** Waits until the model is loaded. */
  ready(signal: AbortSignal): Promise<void>;
  stop(): Promise<void>;
}

/** `clipstack serve` on a free port, in a process of its own. */
async function startServer(model: string): Promise<DemoServer> {
  const port = await freePort();
  const args = [commandLine, "serve", "--model", model, "--http-port", String(port)];
  const child: ChildProcess = spawn(process.execPath, args, {
    env: { ...process.env, LOG_LEVEL: "warn", ENGINE: "onnx" },
    stdio: ["ignore", "ignore", "pipe"],
  });
  let said = "";
  child.stderr?.on("data", (chunk: Buffer) => {
    said = (said + chunk.toString()).slice(-2_000);
  });
  const ended = new Promise<void>((resolve) => child.once("close", () => resolve()));
  const url = `http://127.0.0.1:${port}`;
  return {
    url,
    async ready(signal) {
      const until = performance.now() + startTimeoutMs;
      while (!signal.aborted) {
        if (child.exitCode !== null || child.signalCode !== null) {
          const last = said.trim().split("\n").at(-1) ?? "";
          throw new DedupeError("failed", `clipstack serve ended: ${last}`);
        }
        const answer = await fetch(url + embedPaths.readyz).catch(() => undefined);
        if (answer?.ok) return;
        if (performance.now() > until) {
          throw new DedupeError(
            "failed",
            `clipstack serve is not ready after ${startTimeoutMs / 1000} s`,
          );
        }
        await sleep(200);
      }
    },
    async stop() {
      child.kill("SIGTERM");
      await ended;
    },
  };
}

async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  await new Promise((resolve) => server.close(resolve));
  return typeof address === "object" && address !== null ? address.port : 0;
}

/** Best effort: the address is printed anyway. */
function openBrowser(url: string): void {
  const program = { darwin: "open", win32: "explorer" }[platform() as string] ?? "xdg-open";
  const child = spawn(program, [url], { stdio: "ignore", detached: true });
  child.on("error", () => {});
  child.unref();
}
