import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import { readArtefact, readEnvironment } from "../../artefact/artefact.ts";
import { embedsDocument } from "../../artefact/test-artefact.ts";
import type { ColdStart } from "../../bench/studies/study.ts";
import { defaultModel } from "../../contract/models/index.ts";
import type { DeployedEnvironment } from "../../target/service/deployed-environment.ts";
import { pathWith, standIns } from "../test-programs.ts";
import { mebibytes, studiedContainers } from "./studied-containers.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-restarts-"));
const programs = standIns();
const path = process.env.PATH;
const closers: (() => Promise<unknown>)[] = [];
beforeEach(() => {
  process.env.PATH = pathWith(programs.folder);
});
afterEach(async () => {
  process.env.PATH = path;
  for (const close of closers.splice(0)) await close();
});
afterAll(() => {
  programs.remove();
  rmSync(folder, { recursive: true, force: true });
});

/** Exists while the container runs; the simulated `docker` creates and removes it. */
const running = join(folder, "running");

/** Deployed environment of one embed server. Its port responds while its container runs. */
async function deployed(accelerator: "gpu" | "cpu" = "cpu") {
  const server = createServer((request, response) => {
    request.resume().once("end", () => {
      const embeddings = [Array.from({ length: defaultModel.embedding.width }, () => 0.1)];
      response.writeHead(existsSync(running) ? 200 : 503, { "content-type": "application/json" });
      response.end(JSON.stringify({ embeddings, model: "m" }));
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => new Promise((resolve) => server.close(resolve)));
  const { port } = server.address() as AddressInfo;
  const file = join(folder, "cdk.tf.json");
  writeFileSync(file, JSON.stringify(embedsDocument("one", [{ name: "embed", port }])));
  writeFileSync(running, "");
  const environment = {
    file,
    displayPath: "cdk.tf.json",
    editedByHand: false,
    deployed: {
      ...readEnvironment(file, "cdk.tf.json"),
      accelerator,
      where: "unix:///var/run/docker.sock",
      namespace: undefined,
    },
    openAccess: async () => ({ url: (url: string) => url, notes: [], close: async () => {} }),
  } as unknown as DeployedEnvironment;
  const { signal } = new AbortController();
  return studiedContainers(environment, readArtefact(file, "cdk.tf.json"), signal);
}

const image = {
  name: "image",
  bytes: new Uint8Array(8),
  contentType: "image/jpeg",
  pixels: new Uint8Array(),
  tensor: new Float32Array(),
};
const options = (starts: ColdStart[]) => ({
  spec: defaultModel,
  rounds: 2,
  image,
  signal: new AbortController().signal,
  onPhase: () => {},
  onStart: (start: ColdStart) => starts.push(start),
});

test("a container is restarted in each round and runs afterwards", async () => {
  programs.put(
    "docker",
    `case "$3" in
      stop) rm ${running} ;;
      # a container takes a while
      start) sleep 0.3; touch ${running} ;;
    esac
    echo "$3" >> ${folder}/orders`,
  );
  const containers = await deployed();
  const starts: ColdStart[] = [];
  await containers?.measure(options(starts));
  expect(starts.map(({ service, round }) => [service, round])).toEqual([
    ["embed", 1],
    ["embed", 2],
  ]);
  for (const { readyMs } of starts) expect(readyMs).toBeGreaterThanOrEqual(300);
  expect(existsSync(running)).toBe(true);
});

test("fails with Docker's error if a container cannot be stopped and starts it again", async () => {
  programs.put(
    "docker",
    `[ "$3" = start ] && touch ${running} || { rm ${running}; echo "no such" >&2; exit 1; }`,
  );
  const containers = await deployed();
  await expect(containers?.measure(options([]))).rejects.toThrow(
    /docker stop .*embed failed: no such/,
  );
  expect(existsSync(running)).toBe(true);
});

const answers = (accelerator: "gpu" | "cpu") => {
  programs.put(
    "docker",
    `case "$3" in
      stats) echo "1.5GiB / 15.6GiB" ;;
      top) printf "PID\\n 4711\\n 4712\\n" ;;
    esac`,
  );
  programs.put("nvidia-smi", `printf "4711, 800\\n99, 5000\\n4712, 200\\n"`);
  return deployed(accelerator);
};

test("memory is read from Docker and nvidia-smi", async () => {
  const containers = await answers("gpu");
  expect(await containers?.readMemory("embed")).toEqual({
    residentMiB: 1_536,
    gpuMemoryMiB: 1_000,
  });
});

test("GPU memory is not queried without a GPU", async () => {
  const containers = await answers("cpu");
  expect(await containers?.readMemory("embed")).toEqual({ residentMiB: 1_536 });
});

test("memory is parsed in Docker's units", () => {
  expect(mebibytes("512MiB / 2GiB")).toBe(512);
  expect(mebibytes("2.5GiB / 16GiB")).toBe(2_560);
  expect(mebibytes("1024KiB / 16GiB")).toBe(1);
  expect(mebibytes("-- / --")).toBeUndefined();
  expect(mebibytes("0B / 0B")).toBeUndefined();
});
