import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { expect, test } from "vitest";
import { openPhotoDatabase } from "./photo-database.ts";
import { temporaryFolder } from "./test-photos.ts";

const program = fileURLToPath(new URL("clipstack-dedupe.mjs", import.meta.url));

async function run(...args: readonly string[]) {
  const child = spawn(process.execPath, [program, ...args], {
    stdio: ["ignore", "pipe", "pipe"],
    env: { ...process.env, INFERENCE_MODE: "" },
  });
  const output = { stdout: "", stderr: "" };
  child.stdout.on("data", (chunk) => {
    output.stdout += chunk;
  });
  child.stderr.on("data", (chunk) => {
    output.stderr += chunk;
  });
  const [code] = await once(child, "close");
  return { code, ...output };
}

function emptyDatabase(): string {
  const file = join(temporaryFolder(), "index");
  openPhotoDatabase(file, "create").close();
  return file;
}

test("lists its commands", async () => {
  const { code, stdout } = await run("--help");
  expect(code).toBe(0);
  for (const command of ["scan", "embed", "group", "review", "search", "evaluate"]) {
    expect(stdout).toContain(`  ${command} `);
  }
});

test("fails with exit code 2 and one line on wrong usage", async () => {
  const file = emptyDatabase();
  const text = join(temporaryFolder(), "text");
  const missing = join(temporaryFolder(), "index");
  writeFileSync(text, "no folder");
  for (const [args, line] of [
    [
      ["scan", "/nowhere", "--index", missing],
      "clipstack-dedupe: folder '/nowhere': no such file or directory",
    ],
    [["scan", text], `clipstack-dedupe: folder '${text}': not a directory`],
    [
      ["group", "--index", "/nowhere"],
      "clipstack-dedupe: --index '/nowhere' must be the folder of an index",
    ],
    [["embed", "--index", file, "--workers", "0"], "It must be 1 to 256"],
  ] as const) {
    const { code, stderr } = await run(...args);
    expect(code, line).toBe(2);
    expect(stderr).toContain(line);
    if (stderr.startsWith("clipstack-dedupe")) expect(stderr.trim()).not.toContain("\n");
  }
  expect(existsSync(missing)).toBe(false);
});

test("prints no control characters of file names", async () => {
  const folder = join(temporaryFolder(), "photos\n\x1b[2J");
  mkdirSync(folder);
  for (const name of ["a", "b"]) writeFileSync(join(folder, `${name}\n\x1b]0;x\x07.jpg`), "text");
  const file = join(folder, "index");
  const escaped = "photos\\u000a\\u001b[2J";
  const scanned = await run("scan", folder, "--index", file);
  const grouped = await run("group", "--by", "hash", "--index", file);
  expect(grouped.stderr).toContain(`${escaped}/a\\u000a\\u001b]0;x\\u0007.jpg: cannot be read`);
  const failed = await run("evaluate", folder, "--index", file);
  expect(failed.stderr).toMatch(/^clipstack-dedupe: labels '.*': no such file or directory\n$/);
  expect(failed.stderr).toContain(escaped);
  for (const { stdout, stderr } of [scanned, grouped, failed, await run("scan", `${folder}x`)]) {
    expect((stdout + stderr).split("\n").join("")).not.toMatch(/\p{Cc}/u);
  }
});

test("fails with exit code 1 if a previous step is missing", async () => {
  const { code, stderr } = await run("group", "--index", emptyDatabase());
  expect([code, stderr]).toEqual([
    1,
    "clipstack-dedupe: no photos: run 'clipstack-dedupe scan' first\n",
  ]);
});

test("fails with one line if the port of the review page is in use", async () => {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  try {
    const { code, stderr } = await run(
      "review",
      "--index",
      emptyDatabase(),
      "--port",
      String(port),
    );
    expect([code, stderr]).toEqual([
      2,
      `clipstack-dedupe: port ${port} is in use: choose another with --port\n`,
    ]);
  } finally {
    server.close();
  }
});
