import { once } from "node:events";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { freePorts, isPortInUse } from "../../artefact/free-ports.ts";
import { embedsDocument } from "../../artefact/test-artefact.ts";
import { parseBenchRecord } from "../../bench/record/bench-record.ts";
import { embedPaths } from "../../contract/embed-routes.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { clipstack, startClipstack, untilReady } from "../test-programs.ts";
import { synthesized } from "../test-synthesized.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-cli-bench-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** An environment with one embed server, and options for a short run that saves its reports in a folder of its own. */
async function oneService() {
  const [port = 0] = await freePorts(1);
  const { outdir } = synthesized(embedsDocument("one", [{ name: "embed", port }]));
  const reports = mkdtempSync(join(folder, "reports-"));
  const args = [
    "one",
    "--no-synth",
    "--weights",
    "tiny",
    "--batch-sizes",
    "1",
    "--report",
    reports,
  ];
  return { port, env: { CDKTF_OUTDIR: outdir }, reports, args };
}

describe("an environment with one service", () => {
  test("prints only the record with --json and saves three files", async () => {
    const { args, env, reports } = await oneService();
    const output = join(reports, "results.json");
    const { code, stdout, stderr } = await clipstack(
      [
        ...["bench", ...args],
        ...["--json", "--output", output, "--price", "0.5"],
        ...["--concurrency", "2", "--window", "0.3", "--duration", "3"],
      ],
      env,
    );
    expect(stderr).not.toContain("✘");
    expect(code).toBe(0);
    const record = parseBenchRecord(stdout, "stdout");
    expect(readFileSync(output, "utf8")).toBe(`${stdout}\n`);
    expect(record.loadPoints.map(({ id }) => id)).toEqual(["embed-http b1 c2"]);
    expect(record.subject.model).toMatchObject({ name: "tiny", weights: "random" });
    expect(record.subject.price).toEqual({
      usdPerHour: 0.5,
      date: record.startedAt.slice(0, 10),
      source: "--price",
    });
    const saved = readdirSync(reports).filter((name) => name !== "results.json");
    expect(saved.map((name) => name.replace(/^.*-bench-one/, "")).sort()).toEqual([
      ".html",
      ".json",
      ".md",
    ]);
  });

  test("an interruption saves the measurements so far and leaves no process running", async () => {
    const { args, env, reports, port } = await oneService();
    const { child, done } = startClipstack(
      ["bench", ...args, "--concurrency", "1,2", "--window", "0.3", "--duration", "60"],
      env,
    );
    let output = "";
    const interrupted = new Promise<void>((resolve) => {
      child.stderr?.on("data", async (chunk: Buffer) => {
        if (output.includes("one: embed-http b1")) return;
        output += chunk.toString();
        if (!output.includes("one: embed-http b1")) return;
        // in the middle of the first load
        await sleep(1_500);
        child.kill("SIGINT");
        resolve();
      });
    });
    const { code, stderr } = await done;
    await interrupted;
    expect(stderr).toMatch(/clipstack: interrupted; /);
    expect(code).toBe(130);
    const json = readdirSync(reports).find((name) => name.endsWith(".json")) ?? "";
    const record = parseBenchRecord(readFileSync(join(reports, json), "utf8"), json);
    expect(record.interrupted).toBe(true);
    expect(record.loadPoints.length).toBeGreaterThan(0);
    expect(await isPortInUse(port)).toBe(false);
  });
});

test("fails with exit code 1 if an address returns no embeddings and records the reason", async () => {
  const reports = mkdtempSync(join(folder, "reports-"));
  const server = createServer((_request, response) => response.end("hello"));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const url = `embed-http=http://127.0.0.1:${port}`;
  const { code, stderr } = await clipstack([
    ...["bench", "--url", url, "--weights", "tiny", "--report", reports],
  ]);
  server.closeAllConnections();
  server.close();
  expect({ code, last: stderr.split("\n").at(-1) }).toEqual({
    code: 1,
    last: "✘ parity addresses/embed embed-http: the application/octet-stream response must be rows of 2048 bytes, got 5 bytes",
  });
  expect(readdirSync(reports)).toHaveLength(3);
});

test("compares servers side by side, each through its own protocol", async () => {
  const [openai = 0, http = 0, grpc = 0, metrics = 0] = await freePorts(4);
  const reports = mkdtempSync(join(folder, "reports-"));
  const ports = ["--grpc-port", `${grpc}`, "--metrics-port", `${metrics}`];
  const servers = [
    startClipstack(["serve", "--model", "tiny", "--http-port", `${openai}`]),
    startClipstack(
      ["serve", "--role", "triton", "--model", "tiny", "--http-port", `${http}`].concat(ports),
    ),
  ];
  onTestFinished(async () => {
    for (const { child } of servers) child.kill("SIGKILL");
    await Promise.all(servers.map(({ done }) => done));
  });
  await untilReady(`http://127.0.0.1:${openai}${embedPaths.readyz}`);
  await untilReady(`http://127.0.0.1:${http}${oipPaths.ready}`);
  const { code, stdout, stderr } = await clipstack([
    ...["bench", "--url", `http://127.0.0.1:${openai}`, "--url", `http://127.0.0.1:${http}/`],
    ...["--weights", "tiny", "--rounds", "2", "--window", "0.1", "--windows", "1"],
    ...["--warmup", "0.1", "--concurrency", "1", "--batch-sizes", "1", "--json"],
    ...["--report", reports],
  ]);
  expect(code, stderr).toBe(0);
  const record = parseBenchRecord(stdout, "stdout");
  const expected = [
    { environment: `127.0.0.1:${openai}`, endpoint: "openai-http" },
    { environment: `127.0.0.1:${http}`, endpoint: "onnx-http" },
  ];
  expect(record.parity).toMatchObject(expected.map((server) => ({ ...server, passed: true })));
  expect(record.loadPoints).toMatchObject(expected);
  expect(record.loadPoints.map(({ rounds }) => rounds.length)).toEqual([2, 2]);
});

const rejections: readonly (readonly [string, readonly string[], string])[] = [
  [
    "an environment that is not there",
    ["two", "--no-synth", "--weights", "tiny"],
    "clipstack: environment must be one of one, got 'two'",
  ],
  [
    "a model that the environment does not have",
    ["one", "--no-synth", "--model", "dinov2-small", "--weights", "tiny"],
    "clipstack: --model must be a model of one: openclip-vit-b32, got 'dinov2-small'",
  ],
  [
    "texts for a model without a text tower",
    ["one", "--no-synth", "--modality", "text", "--weights", "tiny"],
    "clipstack: model openclip-vit-b32 must have a text tower",
  ],
  [
    "texts for an image tower",
    ["one", "--no-synth", "--texts", "queries.txt", "--weights", "tiny"],
    "clipstack: --texts requires --modality text",
  ],
  [
    "an endpoint that the environment does not have",
    ["one", "--no-synth", "--weights", "tiny", "--backend", "trt-grpc"],
    "clipstack: one offers none of trt-grpc",
  ],
  [
    "a folder without images",
    ["one", "--no-synth", "--weights", "tiny", "--images", folder],
    `clipstack: --images: ${folder} has no .jpg, .jpeg, .png or .webp file`,
  ],
  [
    "an environment that is not deployed",
    ["one", "--target", "deployed", "--weights", "tiny"],
    "clipstack: one is not deployed from this checkout: 'npx cdktf deploy one' deploys it",
  ],
  [
    "addresses and environments",
    ["one", "--url", "embed-http=http://127.0.0.1:9", "--weights", "tiny"],
    "clipstack: --url cannot be combined with environments or --target",
  ],
  [
    "a file that cannot be written",
    ["one", "--no-synth", "--weights", "tiny", "--report", folder, "--output", `${folder}/no/file`],
    `clipstack: --output ${folder}/no/file cannot be written: ENOENT`,
  ],
  [
    "metrics without an address",
    ["--metrics-url", "onnx=http://127.0.0.1:9", "--weights", "tiny"],
    "clipstack: --metrics-url requires --url, because environments declare their metrics addresses",
  ],
];
test.each(rejections)("fails with exit code 2 and one line on %s", async (_name, args, message) => {
  const { outdir } = synthesized(embedsDocument("one", [{ name: "embed", port: 8_002 }]));
  const { code, stdout, stderr } = await clipstack(["bench", ...args], { CDKTF_OUTDIR: outdir });
  expect({ code, stdout, stderr: stderr.split("\n").at(-1) }).toEqual({
    code: 2,
    stdout: "",
    stderr: message,
  });
});
