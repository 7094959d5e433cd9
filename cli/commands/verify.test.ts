import { once } from "node:events";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, onTestFinished, test } from "vitest";
import { freePorts, isPortInUse } from "../../artefact/free-ports.ts";
import { embedsDocument } from "../../artefact/test-artefact.ts";
import { parseRecord } from "../../bench/record/record.ts";
import { embedPaths } from "../../contract/embed-routes.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { generateModel } from "../../model-tools/generate/generate.ts";
import { clipstack, startClipstack, untilReady } from "../test-programs.ts";
import { synthesized } from "../test-synthesized.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-cli-verify-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const verify = (args: readonly string[], env: Readonly<Record<string, string>>) =>
  clipstack(["verify", ...args], env);

const quick = (reports: string) => ["--weights", "tiny", "--seconds", "0.2", "--report", reports];

describe("an environment with one service", async () => {
  const [port = 0, otherPort = 0] = await freePorts(2);

  test("is compared with the model file in its own model repository", async () => {
    const repository = join(folder, "own-models");
    const model = join(repository, "openclip_vit_b32/1/model.onnx");
    await generateModel({ spec: defaultModel, profile: "tiny", seed: 2, file: model });
    const { outdir } = synthesized(embedsDocument("one", [{ name: "embed", port, repository }]));
    const reports = join(folder, "own-reports");
    const { code, stdout } = await verify(
      ["one", "--no-synth", "--json", "--seconds", "0.2", "--report", reports],
      { CDKTF_OUTDIR: outdir },
    );
    const { subject, checks } = parseRecord(stdout, "stdout");
    expect(checks.filter(({ outcome }) => outcome === "fail")).toEqual([]);
    expect(code).toBe(0);
    expect(subject.model).toMatchObject({ name: model, architecture: "tiny", seed: 2 });
  });

  test("prints only the record with --json, and saves three files", async () => {
    const { outdir } = synthesized(embedsDocument("one", [{ name: "embed", port }]));
    const reports = mkdtempSync(join(folder, "reports-"));
    const output = join(reports, "record.json");
    const { done } = startClipstack(
      ["verify", "one", "--no-synth", "--json", "--output", output, ...quick(reports)],
      { CDKTF_OUTDIR: outdir },
    );
    const { code, stdout, stderr } = await done;
    expect(stderr).not.toContain("✘");
    expect(code).toBe(0);
    const record = parseRecord(stdout, "stdout");
    expect(record.environments[0]?.artefact.editedByHand).toBe(false);
    expect(record.subject.model).toMatchObject({ name: "tiny", weights: "random" });
    expect(readFileSync(output, "utf8")).toBe(`${stdout}\n`);
    expect(
      readdirSync(reports)
        .map((name) => name.replace(/^.*\./, ""))
        .sort(),
    ).toEqual(["html", "json", "json", "md"]);
  });

  test("an edited port fails the wiring check, which names the container", async () => {
    const { outdir, file } = synthesized(embedsDocument("one", [{ name: "embed", port }]));
    const external = `"external":${port}`;
    writeFileSync(file, readFileSync(file, "utf8").replace(external, `"external":${otherPort}`));
    const { code, stdout, stderr } = await verify(["one", ...quick(join(folder, "reports"))], {
      CDKTF_OUTDIR: outdir,
    });
    expect(code).toBe(1);
    expect(stderr).toContain("one: cdk.tf.json was edited by hand");
    expect(stdout).toContain(
      `✗ wiring one/embed: docker_container.embed (container 'one-embed'): publishes ${otherPort}, but the environment's embed-http endpoint is http://127.0.0.1:${port}`,
    );
  });

  test("--url checks services that Terraform did not deploy, without their containers", async () => {
    const document = embedsDocument("one", [{ name: "embed", port: otherPort }]);
    const { outdir } = synthesized(document);
    const server = startClipstack(["serve", "--model", "tiny", "--http-port", `${port}`]);
    onTestFinished(async () => {
      server.child.kill("SIGKILL");
      await server.done;
    });
    const url = `http://127.0.0.1:${port}`;
    await expect
      .poll(
        () =>
          fetch(`${url}/readyz`).then(
            (it) => it.status,
            () => 0,
          ),
        { timeout: 20_000 },
      )
      .toBe(200);
    const at = (...args: readonly string[]) =>
      verify(["one", ...args, ...quick(join(folder, "reports"))], { CDKTF_OUTDIR: outdir });
    const found = await at("--url", `embed-http=${url}`, "--no-synth", "--json");
    const { checks, environments, subject } = parseRecord(found.stdout, "stdout");
    expect(checks.filter(({ outcome }) => outcome === "fail")).toEqual([]);
    expect(found.code).toBe(0);
    expect(subject.target).toBe("deployed");
    const passed = checks.filter(({ outcome }) => outcome === "pass").map(({ id }) => id);
    expect(passed).toEqual(expect.arrayContaining(["endpoints", "parity", "errors", "load"]));
    expect(passed).not.toContain("container");
    expect(environments[0]?.notes).toEqual([
      `reached at ${url}; containers and services without an address were not inspected`,
    ]);
    expect((await at("--url", "onnx-http=http://127.0.0.1:1", "--no-synth")).stderr).toContain(
      "--url must name an endpoint of one (embed-http), got 'onnx-http'",
    );
    expect((await at("--url", `embed-http=${url}`, "--target", "deployed")).stderr).toContain(
      "--url requires the name of one environment, and no --target deployed",
    );
  });

  test("Ctrl-C leaves no process behind", async () => {
    const { outdir } = synthesized(embedsDocument("one", [{ name: "embed", port }]));
    const { child, done } = startClipstack(
      ["verify", "one", "--no-synth", ...quick(join(folder, "reports")), "--seconds", "60"],
      { CDKTF_OUTDIR: outdir },
    );
    while (!(await isPortInUse(port))) await sleep(50);
    child.kill("SIGINT");
    expect(await done).toMatchObject({
      code: 130,
      stderr: expect.stringContaining("clipstack: interrupted; all processes are stopped"),
    });
    expect(await isPortInUse(port)).toBe(false);
  });
});

describe("a server of any kind", async () => {
  const [port = 0] = await freePorts(1);
  const server = startClipstack(["serve", "--model", "tiny", "--http-port", `${port}`]);
  afterAll(async () => {
    server.child.kill("SIGKILL");
    await server.done;
  });
  const url = `http://127.0.0.1:${port}`;
  const check = async (address: string, ...args: readonly string[]) => {
    await untilReady(`${url}${embedPaths.readyz}`);
    return verify(["--url", address, "--json", ...args, ...quick(join(folder, "any"))], {});
  };
  const outcomes = (output: string, tower: string) =>
    Object.fromEntries(
      parseRecord(output, "stdout")
        .checks.filter(({ service }) => service === tower)
        .map(({ id, outcome }) => [id, outcome] as const),
    );

  const passed = { parity: "pass", norm: "pass", batches: "pass", errors: "pass", limits: "pass" };

  test("is checked through the protocol that it answers, without an environment", async () => {
    const { code, stdout } = await check(url);
    expect(outcomes(stdout, "images")).toEqual(passed);
    expect(outcomes(stdout, "texts")).toEqual(passed);
    expect(code).toBe(0);
    expect(parseRecord(stdout, "stdout").subject.server).toBe("openai openclip-vit-b32");
  });

  test("fails each check that it breaks, and no other", async () => {
    const faulty = await startInfinityProxy(url);
    onTestFinished(() => void faulty.close());
    const { code, stdout } = await check(faulty.url);
    const broken = { norm: "fail", batches: "fail", errors: "fail" };
    expect(outcomes(stdout, "images")).toEqual({ ...passed, ...broken });
    expect(outcomes(stdout, "texts")).toEqual({ ...passed, ...broken, parity: "fail" });
    expect(code).toBe(1);
    const messages = parseRecord(stdout, "stdout").checks.map(({ message }) => message);
    expect(messages.join("\n")).toContain(
      "512 values, L2 norm 2.0000; must be 512 values, 1 ± 0.001",
    );
    expect(messages.join("\n")).toContain("batch of 2: row 0 must be the embedding of");
    expect(messages.join("\n")).toContain(
      "broken JSON: must get a status from 400 to 499, got 500",
    );
    expect(messages.join("\n")).toContain(
      "海辺の二匹の犬, собака &amp; кошка 🐕 differ from the local reference",
    );
  });

  test("fails at an address without a server or without the tower, and keeps the other results", async () => {
    const [closed = 0] = await freePorts(1);
    const nowhere = `http://127.0.0.1:${closed}`;
    const tei = await startTeiProxy(url);
    onTestFinished(() => void tei.close());
    const { code, stdout } = await check(nowhere, "--url", tei.url);
    const record = parseRecord(stdout, "stdout");
    expect(outcomes(stdout, "texts")).toEqual(passed);
    const failed = record.checks.filter(({ outcome }) => outcome === "fail");
    expect(failed.map(({ id, message }) => `${id}: ${message}`)).toEqual([
      `connection: --url ${nowhere} must be the address of a running server: connection refused`,
      `connection: --url ${tei.url}: servers of tei embed no images`,
    ]);
    expect({ code, passed: record.passed }).toEqual({ code: 1, passed: false });
    expect(JSON.stringify(record)).toContain("a text of 1600 characters rejected");
  });
});

type Answer = (path: string, body: string) => Promise<{ status: number; body: unknown }>;

async function listen(answer: Answer) {
  const server = createServer(async (request, response) => {
    const found = await answer(request.url ?? "", await text(request));
    response.writeHead(found.status).end(JSON.stringify(found.body));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () => server.close(),
  };
}

interface Embeddings {
  readonly data?: { index: number; embedding?: number[] }[];
}

async function forward(url: string, body: string) {
  const headers = { "content-type": "application/json" };
  const init = body === "" ? {} : { method: "POST", headers, body };
  const response = await fetch(url, init);
  return { status: response.status, body: (await response.json()) as Embeddings };
}

/**
 * Server with infinity's routes in front of clipstack's, which reverses batches, doubles embeddings, replaces characters beyond ASCII and
 * answers 500 to bad requests.
 */
const startInfinityProxy = (upstream: string) =>
  listen(async (path, body) => {
    const found = await forward(`${upstream}/v1${path}`, body.replace(/[^\0-~]/g, "?"));
    for (const [i, row] of [...(found.body.data ?? [])].reverse().entries()) {
      if (row.embedding === undefined) continue;
      row.index = i;
      row.embedding = row.embedding.map((value) => value * 2);
    }
    return { ...found, status: found.status === 400 ? 500 : found.status };
  });

/** Server with the routes of Text Embeddings Inference in front of clipstack's, which rejects long texts. */
const startTeiProxy = (upstream: string) =>
  listen(async (path, body) => {
    if (path === "/info") {
      return { status: 200, body: { model_id: "tiny", max_client_batch_size: 32 } };
    }
    if (path !== "/embed") return { status: 404, body: {} };
    if (body.includes("rocks waves")) return { status: 413, body: { error: "too many tokens" } };
    const found = await forward(`${upstream}/v1/embeddings`, body.replace('"inputs"', '"input"'));
    const { data } = found.body;
    return data === undefined ? found : { ...found, body: data.map((row) => row.embedding) };
  });

const invalidArguments: readonly (readonly [string, readonly string[], string])[] = [
  [
    "an environment that is not there",
    ["two", "--no-synth"],
    "clipstack: environment must be one of one, got 'two'",
  ],
  [
    "a model that is not there",
    ["one", "--no-synth", "--weights", "no-such.onnx"],
    "clipstack: --weights must be tiny, generated or a file that exists, got 'no-such.onnx'",
  ],
  [
    "an environment that is not deployed",
    ["one", "--target", "deployed"],
    "clipstack: one is not deployed from this checkout: 'npx cdktf deploy one' deploys it",
  ],
  [
    "ports beyond the last",
    ["one", "--no-synth", "--weights", "tiny", "--port-offset", "60000"],
    "clipstack: --port-offset: port 8002 + 60000 must be 1 to 65535",
  ],
];
test.each(invalidArguments)(
  "fails with exit code 2 and one line on %s",
  async (_name, args, message) => {
    const { outdir } = synthesized(embedsDocument("one", [{ name: "embed", port: 8_002 }]));
    const { code, stdout, stderr } = await verify(args, { CDKTF_OUTDIR: outdir });
    expect({ code, stdout, stderr: stderr.split("\n").at(-1) }).toEqual({
      code: 2,
      stdout: "",
      stderr: message,
    });
  },
);

test("fails with exit code 2 if Terraform cannot print the outputs of the deployment", async () => {
  const { outdir, file } = synthesized(embedsDocument("one", [{ name: "embed", port: 8_002 }]));
  mkdirSync(join(dirname(file), ".terraform"));
  const { code, stderr } = await verify(["one", "--target", "deployed"], {
    CDKTF_OUTDIR: outdir,
    TERRAFORM_BINARY_NAME: "no-such-terraform",
  });
  expect({ code, stderr }).toEqual({
    code: 2,
    stderr:
      "clipstack: one: no-such-terraform must be installed on this machine to read Terraform's state",
  });
});

test("fails with exit code 2 and no stack trace if any environment has errors", async () => {
  const environments = mkdtempSync(join(folder, "environments-"));
  writeFileSync(join(environments, "good.yaml"), "stack: kind\n");
  writeFileSync(join(environments, "bad.yaml"), "stack: kind\nclustr: {}\n");
  const { code, stderr } = await verify(["good"], {
    CDKTF_OUTDIR: mkdtempSync(join(folder, "out-")),
    CLIPSTACK_ENVIRONMENTS_DIR: environments,
  });
  expect(code).toBe(2);
  expect(stderr).toContain(
    `${environments}/bad.yaml:\n  unknown key 'clustr' (did you mean 'cluster'?)`,
  );
  expect(stderr).not.toMatch(/^\s+at /m);
});

test("fails with exit code 2 without a synthesized environment", async () => {
  const outdir = mkdtempSync(join(folder, "out-"));
  const { code, stderr } = await verify(["--no-synth"], { CDKTF_OUTDIR: outdir });
  expect(code).toBe(2);
  expect(stderr).toBe(
    `clipstack: ${outdir} contains no synthesized environment: npx clipstack synth`,
  );
});
