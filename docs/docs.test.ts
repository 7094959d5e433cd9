import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, matchesGlob, normalize, relative } from "node:path";
import { fileURLToPath } from "node:url";
import type { Command } from "commander";
import { beforeAll, expect, test } from "vitest";
import { parse, stringify } from "yaml";
import { clipstackProgram, commandNames } from "../cli/program.ts";
import { findingsOf } from "../constructs/checks/findings.ts";
import { Testing } from "../constructs/terraform/cdktf.ts";
import { dedupeProgram } from "../examples/photo-dedupe/program.ts";
import { searchProgram } from "../examples/search/program.ts";
import { createStack } from "../stacks/create-stack.ts";
import { exampleEnvironments, shippedEnvironments } from "../stacks/settings/environment-files.ts";
import { parseEnvironment } from "../stacks/settings/settings.ts";
import vitestConfig from "../vitest.config.ts";
import { commandsRun, commandsTested, type TestedCommand } from "./commands.ts";
import { type Page, readPage } from "./markdown.ts";
import { commandsOfBlock, commandsOfSession, type DocumentedCommand } from "./shell.ts";

/** Checks every page: its commands exist, and each is tested or states what it needs. */

const root = fileURLToPath(new URL("../", import.meta.url));
const skipped = new Set(["node_modules", "cdktf.out", "dist", "reports", "records", "plans"]);

function* pagesUnder(folder: string): Generator<string> {
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) {
      const hidden = entry.name.startsWith(".") && entry.name !== ".ci";
      if (!hidden && !skipped.has(entry.name)) yield* pagesUnder(path);
    } else if (entry.name === "README.md" || (path.startsWith("docs/") && path.endsWith(".md"))) {
      yield path;
    }
  }
}

const pages: ReadonlyMap<string, Page> = new Map(
  [...pagesUnder(""), "bench/reports/README.md"].map((path) => [
    path,
    readPage(readFileSync(join(root, path), "utf8")),
  ]),
);

interface Documented extends DocumentedCommand {
  /** `docs/deploy.md:12` */
  readonly location: string;
}

const documented: readonly Documented[] = [...pages].flatMap(([path, { blocks }]) =>
  blocks.flatMap((block) => {
    const commands = { sh: commandsOfBlock, console: commandsOfSession }[block.language];
    return (commands?.(block) ?? []).map((command) => ({
      ...command,
      location: `${path}:${command.line}`,
    }));
  }),
);

function argumentsOf(program: string): readonly { location: string; args: readonly string[] }[] {
  const words = program.split(" ");
  return documented.flatMap(({ location, commands }) =>
    commands
      .filter((command) => words.every((word, index) => command[index] === word))
      .map((command) => ({ location, args: command.slice(words.length) })),
  );
}

const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

/** Parses arguments without running the command. */
function withoutActions(command: Command): Command {
  command.configureOutput({ writeOut: () => {}, writeErr: () => {} });
  for (const sub of command.commands) withoutActions(sub);
  // `review` has subcommands and an action
  if (command.commands.length === 0 || command.name() === "review") command.action(() => {});
  return command;
}

let clipstack: Command;
let dedupe: Command;
let search: Command;
beforeAll(async () => {
  clipstack = withoutActions(await clipstackProgram(commandNames));
  dedupe = withoutActions(dedupeProgram());
  search = withoutActions(searchProgram());
});

async function rejected(
  program: Command,
  all: readonly { readonly location: string; readonly args: readonly string[] }[],
): Promise<readonly string[]> {
  const wrong: string[] = [];
  for (const { location, args } of all) {
    try {
      await program.parseAsync([...args], { from: "user" });
    } catch (error) {
      if (messageOf(error) !== "(outputHelp)")
        wrong.push(`${location}: ${args.join(" ")}: ${messageOf(error)}`);
    }
  }
  return wrong;
}

test("finds commands in every kind of page", () => {
  const locations = documented.map(({ location }) => location.replace(/:\d+$/, ""));
  expect(locations).toEqual(
    expect.arrayContaining(["README.md", "docs/guides/single-gpu.md", "bench/README.md"]),
  );
  expect(documented.length).toBeGreaterThan(100);
});

test("every code block names its language", () => {
  const silent = [...pages].flatMap(([path, { blocks }]) =>
    blocks.filter(({ language }) => language === "").map(({ line }) => `${path}:${line}`),
  );
  expect(silent).toEqual([]);
});

test("text blocks contain no commands", () => {
  const hidden = [...pages].flatMap(([path, { blocks }]) =>
    blocks
      .filter(({ language }) => language === "text")
      .flatMap(({ line, lines }) =>
        lines
          .filter((content) => /^\s*(npx|npm run|kubectl|helm|terraform) |^docker /.test(content))
          .map((content) => `${path}:${line}: ${content}`),
      ),
  );
  expect(hidden).toEqual([]);
});

test("clipstack has every command, option and choice", async () => {
  expect(await rejected(clipstack, argumentsOf("npx clipstack"))).toEqual([]);
});

test("clipstack-dedupe and clipstack-search have every command, option and choice", async () => {
  expect(await rejected(dedupe, argumentsOf("npx clipstack-dedupe"))).toEqual([]);
  expect(await rejected(search, argumentsOf("npx clipstack-search"))).toEqual([]);
});

test("reports commands, options and choices that do not exist", async () => {
  const all = [
    { location: "a", args: ["verfy"] },
    { location: "b", args: ["verify", "--tarjet", "deployed"] },
    { location: "c", args: ["review", "--fail-on", "sometimes"] },
    { location: "d", args: ["review", "--fail-on", "never"] },
  ];
  expect(await rejected(clipstack, all)).toEqual([
    expect.stringContaining("unknown command 'verfy'"),
    expect.stringContaining("unknown option '--tarjet'"),
    expect.stringContaining("Allowed choices are error, warning, never"),
  ]);
});

test("commands in sentences have existing names and options", () => {
  const wrong = [...pages].flatMap(([path, { spans }]) =>
    spans.flatMap(({ line, text }) => {
      const [, name, rest = ""] = /^(?:npx )?(clipstack|clipstack-dedupe) (.*)$/.exec(text) ?? [];
      if (name === undefined) return [];
      return unknownIn(name === "clipstack" ? clipstack : dedupe, rest.split(/\s+/)).map(
        (word) => `${path}:${line}: ${text}: no ${word}`,
      );
    }),
  );
  expect(wrong).toEqual([]);
});

/** Subcommands and options that the program does not have. */
function unknownIn(program: Command, words: readonly string[]): readonly string[] {
  let command = program;
  const unknown: string[] = [];
  for (const word of words) {
    if (word.startsWith("--")) {
      const option = word.replace(/[=,;].*$/, "");
      const known = [...command.options, ...program.options].some(({ long }) => long === option);
      if (!known && option !== "--help" && option !== "--") unknown.push(option);
    } else if (command.commands.length > 0 && /^[a-z0-9-]+$/.test(word)) {
      const sub = command.commands.find((candidate) => candidate.name() === word);
      if (sub !== undefined) command = sub;
      else if (command.registeredArguments.length === 0) unknown.push(word);
    }
  }
  return unknown;
}

test("the applied plan is the one that was compared with the review", () => {
  const compared = [...pages].flatMap(([path, { blocks }]) =>
    blocks.flatMap(({ lines, line }) => {
      const text = lines.join("\n");
      if (!text.includes("--verify-plan")) return [];
      const [, file] = /--plan (\S+) --verify-plan/.exec(text) ?? [];
      const [, plan] = new RegExp(`show -json (\\S+) > ${file}$`, "m").exec(text) ?? [];
      const [, applied] = /--verify-plan \S+ && terraform .*\bapply (\S+)$/m.exec(text) ?? [];
      return [{ location: `${path}:${line}`, plan, applied }];
    }),
  );
  expect(compared.length).toBeGreaterThan(2);
  for (const { location, plan, applied } of compared) {
    expect(plan, location).toBeDefined();
    expect(applied, location).toBe(plan);
  }
});

interface TestProject {
  readonly name: string;
  readonly include: readonly string[];
  readonly exclude: readonly string[];
}

const testProjects = ((vitestConfig.test?.projects ?? []) as { readonly test: TestProject }[]).map(
  ({ test: project }) => project,
);

function* testFilesUnder(folder: string): Generator<string> {
  for (const entry of readdirSync(join(root, folder), { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory() && !skipped.has(entry.name)) yield* testFilesUnder(path);
    else if (entry.name.endsWith(".test.ts")) yield path;
  }
}

/** Fault of `--project <project>` for the files whose path contains a filter, as vitest selects them. */
function projectFault(project: string, filter: string, files: readonly string[]): string[] {
  const { include, exclude } = testProjects.find(({ name }) => name === project) ?? {};
  if (include === undefined) return [`no project ${project}`];
  const matches = (file: string, globs: readonly string[] = []) =>
    globs.some((glob) => matchesGlob(file, glob));
  const isRun = files.some(
    (file) => file.includes(filter) && matches(file, include) && !matches(file, exclude),
  );
  return isRun ? [] : [`project ${project} has no test file ${filter}`];
}

test("every vitest command names a project that contains its files", () => {
  const files = [...testFilesUnder("")];
  const commands = [...pages.keys(), "CONTRIBUTING.md", "AGENTS.md"].flatMap((path) =>
    [
      ...readFileSync(join(root, path), "utf8").matchAll(
        /npx vitest run --project ([\w-]+)((?: (?!-)[\w./-]*[a-z][\w./-]*)*)/g,
      ),
    ].map(([, project = "", filters = ""]) => ({ path, project, filters })),
  );
  expect(commands.length).toBeGreaterThan(20);
  const faults = commands.flatMap(({ path, project, filters }) =>
    (filters.trim() || "")
      .split(" ")
      .flatMap((filter) =>
        projectFault(project, filter, files).map((fault) => `${path}: ${fault}`),
      ),
  );
  expect(faults).toEqual([]);
  expect(projectFault("unit", "verify/verify.test.ts", files)).toEqual([
    "project unit has no test file verify/verify.test.ts",
  ]);
});

test("every npm script exists", () => {
  const manifest = (folder: string): { readonly scripts: Readonly<Record<string, string>> } =>
    JSON.parse(readFileSync(join(root, folder, "package.json"), "utf8"));
  const missing = documented.flatMap(({ location, commands }) =>
    commands
      .filter(([program, run]) => program === "npm" && run === "run")
      .filter(([, , script = "", workspace, folder = ""]) => {
        const { scripts } = manifest(workspace === "-w" ? folder : "");
        return scripts[script] === undefined;
      })
      .map((words) => `${location}: ${words.join(" ")}`),
  );
  expect(missing).toEqual([]);
});

/** Excerpts of environment files on the pages, whose first line names the file. */
const excerpts = [...pages].flatMap(([path, { blocks }]) =>
  blocks.flatMap(({ line, lines }) => {
    const [, file = "", name = ""] = /^# (environments\/(.*)\.yaml)$/.exec(lines[0] ?? "") ?? [];
    return file === "" ? [] : [{ location: `${path}:${line}`, file, name, lines }];
  }),
);

test("every cdktf command names an environment, and options of cdktf", () => {
  const options = new Set([
    ...["--auto-approve", "--skip-provider-lock", "--migrate-state", "--skip-synth", "--hcl"],
  ]);
  const wrong = argumentsOf("npx cdktf").flatMap(({ location, args: [name = "", ...rest] }) => {
    const names = rest.filter((word) => !word.startsWith("-"));
    const page = location.replace(/:.*/, "");
    const created = excerpts.filter((it) => it.location.startsWith(`${page}:`));
    const known: readonly string[] = [
      ...[...shippedEnvironments, ...exampleEnvironments],
      ...created.map((it) => it.name),
    ];
    const good =
      ["deploy", "diff", "destroy", "output", "synth"].includes(name) &&
      names.every((word) => known.includes(word)) &&
      (name === "synth" || names.length > 0) &&
      rest.every((word) => !word.startsWith("-") || options.has(word));
    return good ? [] : [`${location}: ${name} ${rest.join(" ")}`];
  });
  expect(wrong).toEqual([]);
});

const isMap = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Settings of a file, overridden by the excerpt on a page. */
function merged(file: unknown, excerpt: unknown): unknown {
  if (!isMap(file) || !isMap(excerpt)) return excerpt;
  const keys = Object.entries(excerpt).map(([key, value]) => [key, merged(file[key], value)]);
  return { ...file, ...Object.fromEntries(keys) };
}

test("settings on every page are valid", () => {
  expect(excerpts.length).toBeGreaterThan(6);
  const files = new Map<string, unknown>();
  for (const { location, file, name, lines } of excerpts) {
    const excerpt = parse(lines.join("\n"));
    const isShipped = existsSync(join(root, file));
    // a file that a guide creates: its first excerpt has the stack, later ones add to it
    const isFirst = !isShipped && isMap(excerpt) && "stack" in excerpt;
    const before = isShipped ? parse(readFileSync(join(root, file), "utf8")) : files.get(file);
    const settings = merged(isFirst ? {} : before, excerpt);
    files.set(file, settings);
    const environment = parseEnvironment(name, location, stringify(settings));
    if (isShipped) continue;
    // a page may show a rejection, with its message
    const page = readFileSync(join(root, location.replace(/:.*/, "")), "utf8");
    const findings = findingsOf(createStack(Testing.app(), environment));
    expect(findings.filter((line) => !page.includes(line))).toEqual([]);
  }
});

/** Top-level folders. A word that starts with one is a path. */
const folders = readdirSync(root, { withFileTypes: true })
  .filter(
    (entry) => entry.isDirectory() && !["node_modules", "cdktf.out", ".git"].includes(entry.name),
  )
  .map(({ name }) => name);

/** Paths that are generated and not committed. */
const generatedPaths =
  /model\.onnx|^bench\/reports\/(?!2026-11-22)|^inference-image\/dist|prepared|\.gen\/|[*…<{$]/;

function isMissing(path: string, page: string): boolean {
  const named = path.replace(/[:#].*$/, "").replace(/\/$/, "");
  if (!folders.some((folder) => named.startsWith(`${folder}/`)) || generatedPaths.test(named))
    return false;
  return !existsSync(join(root, named)) && !existsSync(join(root, dirname(page), named));
}

test("every file named in a command or a sentence exists", () => {
  const inCommands = documented.flatMap(({ location, commands }) =>
    commands
      .flat()
      .filter((word) => isMissing(word.replace(/^\.\//, ""), location))
      .map((word) => `${location}: ${word}`),
  );
  const inSentences = [...pages].flatMap(([path, { spans }]) =>
    spans
      .filter(({ text }) => /^[\w./-]+\.[a-z]+$/.test(text) && isMissing(text, path))
      .map(({ line, text }) => `${path}:${line}: ${text}`),
  );
  expect([...inCommands, ...inSentences]).toEqual([]);
});

test("every link inside the project resolves", () => {
  const broken = [...pages].flatMap(([path, { links }]) =>
    links
      .filter(({ target }) => !/^[a-z]+:/.test(target))
      .filter(({ target }) => {
        const [file = "", anchor] = target.split("#");
        const found = file === "" ? path : normalize(join(dirname(path), file));
        const absolute = join(root, found);
        if (!existsSync(absolute)) return true;
        if (anchor === undefined) return false;
        const page =
          pages.get(found) ??
          (statSync(absolute).isFile() ? readPage(readFileSync(absolute, "utf8")) : undefined);
        return page?.anchors.has(anchor) !== true;
      })
      .map(({ line, target }) => `${path}:${line}: ${target}`),
  );
  expect(broken).toEqual([]);
});

test("every page under docs can be reached from docs/README.md", () => {
  const reached = new Set<string>();
  const follow = (path: string) => {
    if (reached.has(path)) return;
    reached.add(path);
    for (const { target } of pages.get(path)?.links ?? []) {
      const found = normalize(join(dirname(path), target.replace(/#.*$/, "")));
      if (pages.has(found)) follow(found);
    }
  };
  follow("docs/README.md");
  const alone = [...pages.keys()].filter((path) => path.startsWith("docs/") && !reached.has(path));
  expect(alone).toEqual([]);
});

/** Requirements that a page may state for a command because tests cannot provide them. */
const knownRequirements =
  /^(a GPU|a GPU host|four GPUs|a cluster|a GPU cluster|kind|Docker|the internet|a registry|root|an AWS account|a Google Cloud project|an Azure subscription|a folder of images|a planned job|a quiet machine|a bucket|a running server|running servers|\w+ and the internet)$/;

const wordsOf = (command: string) => command.split(" ");
const startsWith = (words: readonly string[], start: readonly string[]) =>
  start.every((word, index) => words[index] === word);

/** The entry with the longest matching command. */
function entryFor(words: readonly string[]): TestedCommand | undefined {
  return commandsTested
    .filter(({ command }) => startsWith(words, wordsOf(command)))
    .sort((a, b) => wordsOf(b.command).length - wordsOf(a.command).length)[0];
}

const normalText = (words: readonly string[]) => words.join(" ");
const isRun = (words: readonly string[]) =>
  commandsRun.some(({ command }) => command === normalText(words));

/** Commands that need no test: they change the folder, set a variable or print text. */
const untestedPrograms = new Set([
  "cd",
  "mkdir",
  "export",
  "cat",
  "head",
  "echo",
  "jq",
  "sh",
  "git",
  "less",
]);

test("every command is run by a test or states what it needs", () => {
  const open = documented.flatMap(({ location, commands, needs: requirement }) =>
    requirement !== undefined
      ? knownRequirements.test(requirement) || commands.some((words) => words.includes(requirement))
        ? []
        : [`${location}: '# needs ${requirement}' is not a known requirement`]
      : commands
          .filter((words) => !untestedPrograms.has(words[0] ?? ""))
          .filter((words) => !isRun(words) && entryFor(words) === undefined)
          .map((words) => `${location}: ${normalText(words)}`),
  );
  expect(open).toEqual([]);
});

const textOf = (() => {
  const texts = new Map<string, string>();
  return (file: string) => {
    const text = texts.get(file) ?? readFileSync(join(root, file), "utf8");
    texts.set(file, text);
    return text;
  };
})();

test("the test of a command contains its words and options", () => {
  const missing = documented.flatMap(({ location, commands, needs: requirement }) =>
    requirement !== undefined
      ? []
      : commands
          .filter((words) => !isRun(words))
          .flatMap((words) => {
            const entry = entryFor(words);
            if (entry === undefined) return [];
            const text = entry.tests.map(textOf).join("\n");
            const isProjectCommand = ["npx", "npm"].includes(words[0] ?? "");
            const options = (isProjectCommand ? words : [])
              .slice(wordsOf(entry.command).length)
              .filter((word) => word.startsWith("--") && word.length > 2)
              .map((word) => word.replace(/=.*$/, ""));
            return [...wordsToFind(entry), ...options]
              .filter((word) => !text.includes(word))
              .map((word) => `${location}: '${word}' is not in ${entry.tests.join(", ")}`);
          }),
  );
  expect(missing).toEqual([]);
});

function wordsToFind({ command, words }: TestedCommand): readonly string[] {
  return (
    words ??
    wordsOf(command).filter(
      (word) =>
        !["npx", "clipstack", "clipstack-dedupe", "clipstack-search", "npm", "run"].includes(word),
    )
  );
}

test("every listed test exists and is used", () => {
  const files = commandsTested.flatMap(({ tests }) => tests);
  expect(files.filter((file) => !existsSync(join(root, file)))).toEqual([]);
  const all = documented.flatMap(({ commands }) => commands);
  const unused = [
    ...commandsTested.filter((entry) => !all.some((words) => entryFor(words) === entry)),
    ...commandsRun.filter(({ command }) => !all.some((words) => normalText(words) === command)),
  ];
  expect(unused.map(({ command }) => command)).toEqual([]);
});

test("no page contains a path of the author's machine", () => {
  const wrong = [...pages.keys()].filter((path) =>
    /\/work\/|\/root\/|\/tmp\/[fh]\//.test(readFileSync(join(root, path), "utf8")),
  );
  expect(wrong.map((path) => relative(".", path))).toEqual([]);
});
