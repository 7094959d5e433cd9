import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { openHttpTransport } from "../../client/triton/http-transport.ts";
import { clipstack, startClipstack } from "../test-programs.ts";

/** Folder for temporary files of the program. */
let folder: string;
let child: Pick<ChildProcess, "kill"> | undefined;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "clipstack-serve-"));
});
afterEach(() => {
  child?.kill("SIGKILL");
  rmSync(folder, { recursive: true });
});

function serve(...args: string[]) {
  const started = startClipstack(["serve", ...args], { TMPDIR: folder });
  child = started.child;
  return started;
}

async function answers(url: string): Promise<boolean> {
  return fetch(url).then(
    ({ ok }) => ok,
    () => false,
  );
}

test("starts the embed server on the loopback interface and stops it on Ctrl-C", async () => {
  const [port] = await freePorts(1);
  const { child: server, done } = serve("--model", "tiny", "--http-port", String(port));
  await expect.poll(() => answers(`http://127.0.0.1:${port}/readyz`)).toBe(true);
  const response = await fetch(`http://127.0.0.1:${port}/embed/text`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ texts: ["a photo of a dog"] }),
  });
  expect(await response.json()).toMatchObject({ model: "openclip-vit-b32" });
  server.kill("SIGINT");
  const { code, stdout } = await done;
  expect(code).toBe(0);
  expect(stdout).toContain(`listening on http://127.0.0.1:${port}`);
});

test.each(["SIGTERM", "SIGKILL"] as const)("ends when npx is killed with %s", async (signal) => {
  const [port] = await freePorts(1);
  const args = ["clipstack", "serve", "--model", "tiny", "--http-port", String(port)];
  const npx = spawn("npx", args, { env: { ...process.env, TMPDIR: folder }, stdio: "ignore" });
  child = npx;
  const url = `http://127.0.0.1:${port}/healthz`;
  await expect.poll(() => answers(url)).toBe(true);
  npx.kill(signal);
  await expect.poll(() => answers(url)).toBe(false);
});

test("starts the Triton emulator and leaves no folder behind", async () => {
  const [http, grpc, metrics] = await freePorts(3);
  const { child: server, done } = serve(
    ...["--role", "triton", "--model", "tiny"],
    ...[
      "--http-port",
      String(http),
      "--grpc-port",
      String(grpc),
      "--metrics-port",
      String(metrics),
    ],
  );
  const base = `http://127.0.0.1:${http}/v2`;
  await expect.poll(() => answers(`${base}/health/ready`)).toBe(true);
  for (const model of ["trt", "u8", "jpeg", "text"]) {
    expect(await answers(`${base}/models/openclip_vit_b32_${model}/ready`)).toBe(true);
  }
  const photo = readFileSync(new URL("../../model-tools/samples/sunset.jpg", import.meta.url));
  const transport = openHttpTransport({ url: `http://127.0.0.1:${http}` });
  const input = { name: "image", dataType: "BYTES", shape: [1, 1], data: [photo] } as const;
  const options = { timeoutMs: 20_000 };
  const [embedding] = await transport.infer("openclip_vit_b32_jpeg", [input], options);
  expect(embedding!.shape).toEqual([1, 512]);
  await transport.close();
  expect(await answers(`http://127.0.0.1:${metrics}/metrics`)).toBe(true);
  const repositories = () =>
    readdirSync(folder).filter((name) => name.startsWith("clipstack-models-"));
  expect(repositories()).toHaveLength(1);
  server.kill("SIGINT");
  expect((await done).code).toBe(0);
  expect(repositories()).toEqual([]);
});

test.each([
  [
    ["--role", "embed", "--grpc-port", "8004"],
    "clipstack: --grpc-port is for --role triton, got '8004'",
  ],
  [
    ["--model", "tiny", "--model", "generated"],
    "clipstack: --model must not repeat a model, got openclip-vit-b32 twice",
  ],
  [
    ["--model", "none.onnx"],
    "clipstack: --model must be tiny, generated, the name of a model, or a file that exists, got 'none.onnx'",
  ],
  [["--model", "stacks"], /^clipstack: model must be one of openclip-vit-b32, .*, got 'stacks'$/],
])("serve %j exits with 2 and one line", async (args, message) => {
  const { code, stderr } = await clipstack(["serve", ...args]);
  expect(stderr).toMatch(message);
  expect(code).toBe(2);
});

test("fails without a key unless HOST is a loopback address", async () => {
  const { code, stderr } = await serve("--model", "tiny", "--host", "0.0.0.0").done;
  expect(code).toBe(2);
  expect(stderr).toContain(
    "API_KEY or API_KEYS_FILE is required unless HOST is a loopback address",
  );
});
