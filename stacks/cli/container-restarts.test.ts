import { existsSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, afterEach, beforeEach, expect, test } from "vitest";
import { readArtefact, readEnvironment } from "../../bench/src/artefact.ts";
import { embedsDocument } from "../../bench/src/test-artefact.ts";
import type { DeployedEnvironment } from "../../bench/src/verify-deployed.ts";
import type { ColdStart } from "../../bench/studies/cold-start.ts";
import { embeddingDims } from "../../inference-image/src/contract/model-signature.ts";
import { mebibytes, restartsOf } from "./container-restarts.ts";
import { pathWith, standIns } from "./test-programs.ts";

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

/** What the container is when it runs; `docker` of the stand-in makes and removes it. */
const running = join(folder, "running");

/** A deployed environment of one embed server, whose port answers while its container runs. */
async function deployed() {
  const server = createServer((request, response) => {
    request.resume().once("end", () => {
      const embeddings = [Array.from({ length: embeddingDims }, () => 0.1)];
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
    shown: "cdk.tf.json",
    editedByHand: false,
    deployed: readEnvironment(file, "cdk.tf.json"),
    reach: async () => ({ url: (url: string) => url, notes: [], close: async () => {} }),
  } as unknown as DeployedEnvironment;
  const { signal } = new AbortController();
  return restartsOf(environment, readArtefact(file, "cdk.tf.json"), signal);
}

const image = {
  name: "image",
  bytes: new Uint8Array(8),
  contentType: "image/jpeg",
  pixels: new Uint8Array(),
  tensor: new Float32Array(),
};
const options = (starts: ColdStart[]) => ({
  rounds: 2,
  image,
  signal: new AbortController().signal,
  onPhase: () => {},
  onStart: (start: ColdStart) => starts.push(start),
});

test("a container is stopped and started in each round, and runs afterwards", async () => {
  programs.put(
    "docker",
    `case "$3" in
      stop) rm ${running} ;;
      # a container takes a while
      start) sleep 0.3; touch ${running} ;;
    esac
    echo "$3" >> ${folder}/orders`,
  );
  const restarts = await deployed();
  const starts: ColdStart[] = [];
  await restarts?.measure(options(starts));
  expect(starts.map(({ service, round }) => [service, round])).toEqual([
    ["embed", 1],
    ["embed", 2],
  ]);
  for (const { readyMs } of starts) expect(readyMs).toBeGreaterThanOrEqual(300);
  expect(existsSync(running)).toBe(true);
});

test("fails with Docker's words when a container cannot be stopped, and starts it again", async () => {
  programs.put(
    "docker",
    `[ "$3" = start ] && touch ${running} || { rm ${running}; echo "no such" >&2; exit 1; }`,
  );
  const restarts = await deployed();
  await expect(restarts?.measure(options([]))).rejects.toThrow(
    /docker stop .*embed failed: no such/,
  );
  expect(existsSync(running)).toBe(true);
});

test("memory is what Docker says of the container", async () => {
  programs.put("docker", `echo "1.5GiB / 15.6GiB"`);
  expect(await (await deployed())?.readResident("embed")).toBe(1_536);
});

test("memory is read in Docker's units", () => {
  expect(mebibytes("512MiB / 2GiB")).toBe(512);
  expect(mebibytes("2.5GiB / 16GiB")).toBe(2_560);
  expect(mebibytes("1024KiB / 16GiB")).toBe(1);
  expect(mebibytes("-- / --")).toBeUndefined();
});
