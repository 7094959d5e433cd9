import { spawnSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { benchRecordKind } from "../bench/record/bench-record.ts";
import { type RecordKind, renderRecordSchema } from "../bench/record/parse-record.ts";
import { verifyRecordKind } from "../bench/record/record.ts";
import { tritonLauncher } from "../contract/triton-launcher.ts";
import { calibratedTable, publishedFacts } from "../lab/capacity/table.ts";
import { ruleIdFile } from "../review/rules/rules.ts";
import { settingsDocs } from "../stacks/settings/settings-docs.ts";
import { settingsSchemaFiles } from "../stacks/settings/settings-schema.ts";
import { drillRecordKind } from "../verify/drills/drill-record.ts";
import { apiDocs } from "./render-api.ts";
import { chartFiles } from "./render-chart.ts";
import { gpuDocs } from "./render-gpus.ts";
import { imageLockFiles } from "./render-image-lock.ts";
import { llmsText } from "./render-llms.ts";
import { metricDocs } from "./render-metrics.ts";
import { modelConfigFiles } from "./render-model-configs.ts";
import { modelDocs } from "./render-models.ts";
import { monitoringFiles } from "./render-monitoring.ts";
import { outputPages } from "./render-outputs.ts";
import { resultsDocs } from "./render-results.ts";
import { serverVariablesFile } from "./render-server-variables.ts";
import { thirdPartyPage } from "./render-third-party.ts";
import type { RenderedFile } from "./rendered-file.ts";

/** Files that are rendered completely. */
const completeProducers: readonly (() => readonly RenderedFile[])[] = [
  modelConfigFiles,
  settingsSchemaFiles,
  imageLockFiles,
  chartFiles,
  monitoringFiles,
  () => [ruleIdFile()],
  () => [{ path: "docs/settings.md", text: settingsDocs() }],
  () => [serverVariablesFile()],
  apiDocs,
  () => [{ path: "docs/gpus.md", text: gpuDocs() }],
  () => [llmsText()],
  () => [{ path: "docs/metrics.md", text: metricDocs() }],
  () => [{ path: "docs/models.md", text: modelDocs() }],
  () => [{ path: "docs/third-party.md", text: thirdPartyPage() }],
  () => [{ path: "docs/results.md", text: resultsDocs() }],
  () => [
    {
      path: "bench/capacity/parameters.json",
      text: `${JSON.stringify(calibratedTable(publishedFacts()), null, 2)}\n`,
    },
  ],
  () => [
    {
      path: "model_repository/image/launch.py",
      text: `# Rendered by 'npm run render' from contract/triton-launcher.ts. Do not edit.\n${tritonLauncher}`,
    },
  ],
  () => [
    recordSchemaFile("bench/record/record.schema.json", verifyRecordKind),
    recordSchemaFile("bench/record/bench-record.schema.json", benchRecordKind),
    recordSchemaFile("verify/drills/drill-record.schema.json", drillRecordKind),
  ],
];

/** Hides rendered files in reviews of pull requests and statistics of the repository. */
function gitAttributes(): readonly RenderedFile[] {
  const paths = completeProducers.flatMap((produce) => produce().map(({ path }) => path));
  const lines = paths.sort().map((path) => `/${path} linguist-generated`);
  return [
    { path: ".gitattributes", text: `# Written by 'npm run render'.\n${lines.join("\n")}\n` },
  ];
}

/** Everything that is rendered. To add files, add a producer. */
export const producers: readonly (() => readonly RenderedFile[])[] = [
  ...completeProducers,
  outputPages,
  gitAttributes,
];

function recordSchemaFile(path: string, kind: RecordKind<unknown>): RenderedFile {
  return { path, text: renderRecordSchema(kind) };
}

const root = fileURLToPath(new URL("../", import.meta.url));

/** Returns the files that are missing in `folder` or differ from the rendered text. */
export function staleFiles(
  files: readonly RenderedFile[],
  folder: string = root,
): readonly RenderedFile[] {
  return files.filter(({ path, text }) => {
    const file = join(folder, path);
    return !existsSync(file) || readFileSync(file, "utf8") !== text;
  });
}

/**
 * `npm run render`: writes stale files; with `-- --check`, only lists them.
 *
 * @returns Exit code: 0 success, 1 stale files, 2 wrong usage.
 */
export async function render(args: readonly string[], folder: string = root): Promise<number> {
  const unknown = args.find((arg) => arg !== "--check");
  if (unknown !== undefined) {
    console.error(`render: unknown argument '${unknown}'; usage: npm run render [-- --check]`);
    return 2;
  }
  const files = producers.flatMap((produce) => produce());
  const stale = staleFiles(files, folder);
  if (args.includes("--check")) {
    for (const { path } of stale) console.error(`${path} is stale: run 'npm run render'`);
    if (stale.length > 0) return 1;
    console.log(`${files.length} rendered files are up to date`);
    return 0;
  }
  for (const { path, text } of stale) {
    await mkdir(dirname(join(folder, path)), { recursive: true });
    await writeFile(join(folder, path), text);
    console.log(`wrote ${path}`);
  }
  console.log(`${files.length} rendered files, ${stale.length} written`);
  if (folder === root && stale.some(({ path }) => path.endsWith(".ts"))) {
    // other files are rendered from modules that this process loaded before they were written
    const program = fileURLToPath(import.meta.url);
    return (
      spawnSync(process.execPath, [...process.execArgv, program], { stdio: "inherit" }).status ?? 1
    );
  }
  return 0;
}

if (import.meta.url === pathToFileURL(process.argv[1] ?? "").href) {
  process.exitCode = await render(process.argv.slice(2));
}
