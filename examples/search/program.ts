import { existsSync } from "node:fs";
import { Command, InvalidArgumentError } from "commander";
import packageJson from "./package.json" with { type: "json" };
import { addQueryOptions, type QueryOptions, queryHelp } from "./query-client.ts";
import { CommandError, openProgress, printable } from "./report.ts";
import type { VectorIndex } from "./vector-index.ts";

const tableText = "folder of 'clipstack bulk', or of its 'consolidate'";
const postgresText =
  "database with pgvector, postgres://… (default: a usearch index in the folder)";

interface IndexOption {
  readonly postgres?: string;
}

/** Returns the command line, used by `main.ts` and by a test of the documentation. */
export function searchProgram(): Command {
  const program = new Command("clipstack-search")
    .description("Search the images of a table by text and image, and find near duplicates.")
    .version(packageJson.version)
    .showHelpAfterError("(run with --help for usage)")
    .addHelpText(
      "after",
      "\nExit codes: 0 success, 1 the command failed, 2 wrong usage or settings.",
    );
  addBuild(program);
  addServe(program);
  addNearDuplicates(program);
  return program;
}

/** @throws {CommandError} if the folder has no embeddings */
async function tableOf(folder: string) {
  const { readTable } = await import("./table.ts");
  const table = await readTable(folder);
  if (table.count > 0) return table;
  throw new CommandError("usage", `'${folder}' must contain the table of a bulk job, got no rows`);
}

function addBuild(program: Command): void {
  program
    .command("build")
    .description("index the embeddings of a table; replaces an earlier index")
    .argument("<folder>", tableText)
    .option("--postgres <url>", postgresText)
    .action(async (folder: string, { postgres }: IndexOption) => {
      const { buildIndex, loadPostgres } = await import("./vector-index.ts");
      const table = await tableOf(folder);
      const startedAt = performance.now();
      await (postgres === undefined ? buildIndex(folder, table) : loadPostgres(postgres, table));
      const seconds = ((performance.now() - startedAt) / 1000).toFixed(1);
      console.log(`${table.count} embeddings of ${table.model} indexed in ${seconds} s`);
    });
}

function addServe(program: Command): void {
  const command = program
    .command("serve")
    .description("show a page on this machine that searches by text and image")
    .argument("<folder>", tableText)
    .option("--postgres <url>", postgresText)
    .option("--port <port>", "port of the page; 0 selects a free one", numberIn(0, 65_535), 8000);
  addQueryOptions(command)
    .addHelpText("after", `\n${queryHelp}`)
    .action(
      async (folder: string, args: IndexOption & QueryOptions & { readonly port: number }) => {
        const { openIndex, openPostgres } = await import("./vector-index.ts");
        const { openQueryClient } = await import("./query-client.ts");
        const { serveLocalPage, stopSignal } = await import("./local-page.ts");
        const { buildSearchApp } = await import("./search-server.ts");
        const index = await (args.postgres === undefined
          ? openIndex(folder)
          : openPostgres(args.postgres));
        const client = await openQueryClient(index.model, args, openProgress().note);
        try {
          await checkWeights(folder, index, client);
          await serveLocalPage(buildSearchApp(index, client), {
            port: args.port,
            signal: stopSignal(),
            onListening: (url) => console.log(`search page: ${url} (stop with Ctrl-C)`),
          });
        } finally {
          await client.close();
          await index.close();
        }
      },
    );
}

/** Images in a bucket are not read here: their weights are not checked. */
async function checkWeights(
  folder: string,
  { model, sample }: VectorIndex,
  client: Parameters<typeof import("./query-client.ts").requireSameWeights>[0],
): Promise<void> {
  const { requireSameWeights } = await import("./query-client.ts");
  if (!existsSync(sample.uri)) return;
  const image = { path: sample.uri, vector: sample.vector };
  await requireSameWeights(client, image, `'${folder}', ${model}`);
}

function addNearDuplicates(program: Command): void {
  program
    .command("near-duplicates")
    .description("print the pairs of images with similar embeddings, the most similar first")
    .argument("<folder>", tableText)
    .option("--threshold <cosine>", "minimum cosine of two embeddings", numberIn(-1, 1), 0.95)
    .action(async (folder: string, { threshold }: { readonly threshold: number }) => {
      const { nearDuplicates } = await import("./near-duplicates.ts");
      const progress = openProgress();
      const table = await tableOf(folder);
      const pairs = await nearDuplicates(table, {
        threshold,
        onProgress: (share) => progress.update(`comparing: ${Math.round(100 * share)} %`),
      });
      for (const { a, b, cosine } of pairs) {
        const uris = [table.uris[a]!, table.uris[b]!].map(printable).join("\t");
        console.log(`${cosine.toFixed(4)}\t${uris}`);
      }
    });
}

/** Parser of an option's number. */
export function numberIn(min: number, max: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (value.trim() !== "" && number >= min && number <= max) return number;
    throw new InvalidArgumentError(`It must be ${min} to ${max}.`);
  };
}
