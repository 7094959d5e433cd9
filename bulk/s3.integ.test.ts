import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { execa, type ResultPromise } from "execa";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { loadImages, makeLoadImages } from "../model-tools/samples/load-images.ts";
import { readJob } from "./job/job.ts";
import { openStore } from "./store/open-store.ts";
import { FaultyEndpoint } from "./test-faulty-endpoint.ts";
import { failuresOf, plannedJob, tableOf, temporaryFolder, tinyWorker } from "./test-job.ts";

/** Built by `.ci/s3-server`. */
const program = process.env.CLIPSTACK_S3_SERVER;
const count = 120;

describe.skipIf(program === undefined)("with an S3 server (CLIPSTACK_S3_SERVER)", () => {
  const port = 17_471;
  const endpoint = new FaultyEndpoint(port);
  let server: ResultPromise;
  let expected: Awaited<ReturnType<typeof tableOf>>;
  let modelFile: string | undefined;

  beforeAll(async () => {
    const root = await temporaryFolder();
    const photos = await temporaryFolder();
    const arguments_ = ["--access", "test", "--secret", "testsecret", "--quiet"];
    server = execa(program!, [...arguments_, "--port", `127.0.0.1:${port}`, "posix", root], {
      reject: false,
    });
    Object.assign(process.env, {
      AWS_ENDPOINT_URL_S3: await endpoint.listen(),
      AWS_ACCESS_KEY_ID: "test",
      AWS_SECRET_ACCESS_KEY: "testsecret",
    });
    await execa("mkdir", [join(root, "photos"), join(root, "vectors")]);
    const bucket = await openStore("s3://photos/2026");
    const files = await makeLoadImages(loadImages.thumbnail);
    for (let index = 0; index < count; index++) {
      const [name, file] = [`${1000 + index}.jpg`, files[index % files.length]!];
      await writeFile(join(photos, name), file);
      await bucket.write(`a/${name}`, file);
    }
    await bucket.write("a/truncated.jpg", files[0]!.subarray(0, 2_000));
    const job = await temporaryFolder();
    await plannedJob(photos, job);
    const variables = await tinyWorker(job);
    modelFile = variables.BULK_MODEL_FILE;
    const { runBulkWorker } = await import("./work/worker.ts");
    await runBulkWorker(variables);
    expected = await tableOf(job);
  });
  afterAll(async () => {
    endpoint.close();
    server.kill();
    await server;
  });

  function startWorker(job: string): ResultPromise {
    endpoint.reject = () => undefined;
    const main = fileURLToPath(new URL("main.ts", import.meta.url));
    const child = execa(process.execPath, ["--import", "tsx", main], {
      env: { BULK_JOB: job, BULK_MODEL_FILE: modelFile, BULK_PATIENCE_SECONDS: "120" },
      reject: false,
    });
    onTestFinished(() => void child.kill("SIGKILL"));
    return child;
  }

  /** Resolves after a number of requests. */
  async function requests(number: number): Promise<void> {
    const end = endpoint.requests + number;
    await expect.poll(() => endpoint.requests, { interval: 5 }).toBeGreaterThan(end);
  }

  async function expectSameTable(job: string): Promise<void> {
    const facts = ({ uri, sha256, width, height }: (typeof expected)[number]) => {
      return [uri.replace(/.*\//, ""), sha256, width, height];
    };
    const table = await tableOf(job);
    expect(table.map(facts)).toEqual(expected.map(facts));
    for (const [row, { embedding }] of table.entries()) {
      const differences = embedding.map((value, at) =>
        Math.abs(value - expected[row]!.embedding[at]!),
      );
      expect(Math.max(...differences)).toBeLessThan(1e-5);
    }
    const failures = await failuresOf(job);
    expect(failures.map(({ uri, code }) => [uri, code])).toEqual([
      ["s3://photos/2026/a/truncated.jpg", "undecodable_image"],
    ]);
  }

  test("a bucket that throttles and a killed worker change nothing in the table", async () => {
    const job = "s3://vectors/throttled";
    await plannedJob("s3://photos/2026", job);
    const killed = startWorker(job);
    await requests(60);
    killed.kill("SIGKILL");
    await killed;
    const worker = startWorker(job);
    await requests(20);
    const until = Date.now() + 5_000;
    let rejected = 0;
    endpoint.reject = () => {
      if (Date.now() > until || Math.random() < 0.1) return undefined;
      rejected += 1;
      return { status: 503, code: "SlowDown" };
    };
    const { exitCode, stderr } = await worker;
    expect({ exitCode, stderr }).toMatchObject({ exitCode: 0 });
    expect(rejected).toBeGreaterThan(10);
    await expectSameTable(job);
  });

  test("expired credentials end the worker with one line, and a run with new ones resumes", async () => {
    const job = "s3://vectors/expired";
    await plannedJob("s3://photos/2026", job);
    const worker = startWorker(job);
    await requests(60);
    endpoint.reject = () => ({ status: 400, code: "ExpiredToken" });
    const { exitCode, stderr } = await worker;
    expect(exitCode).toBe(1);
    expect(String(stderr).split("\n")).toEqual([
      expect.stringMatching(/^\d+ shards, \d+ images, 0 errors$/),
      expect.stringMatching(
        /^s3:\/\/\S+: the credentials must be valid, got ExpiredToken; renew them and run again: completed shards are kept$/,
      ),
    ]);
    const before = await (async () => {
      endpoint.reject = () => undefined;
      return await tableOf(job);
    })();
    expect(before.length).toBeLessThan(count);
    expect((await startWorker(job)).exitCode).toBe(0);
    await expectSameTable(job);
  });

  test("an image that has changed since the plan is an error, and planning again embeds it", async () => {
    const job = "s3://vectors/changed";
    const bucket = await openStore("s3://photos/changing");
    const file = await readFile(new URL("../model-tools/samples/fruit.jpg", import.meta.url));
    await bucket.write("b.jpg", expected.length > 0 ? file : "");
    await plannedJob("s3://photos/changing", job);
    await bucket.write(
      "b.jpg",
      await readFile(new URL("../model-tools/samples/dunes.jpg", import.meta.url)),
    );
    expect((await startWorker(job)).exitCode).toBe(0);
    expect(await failuresOf(job)).toMatchObject([{ code: "changed" }]);
    expect(await plannedJob("s3://photos/changing", job)).toMatchObject({ changed: 1 });
    expect((await startWorker(job)).exitCode).toBe(0);
    expect(await failuresOf(job)).toEqual([]);
    expect(await tableOf(job)).toHaveLength(1);
  });

  test("fails with one line for a missing bucket, a wrong key and no endpoint", async () => {
    await expect(openStore("s3://none", 0).then((store) => store.read("a"))).rejects.toThrow(
      "s3://none/a: the bucket does not exist",
    );
    endpoint.reject = () => ({ status: 403, code: "SignatureDoesNotMatch" });
    const store = await openStore("s3://photos", 0);
    await expect(store.read("a")).rejects.toThrow(
      "the credentials must be valid, got SignatureDoesNotMatch",
    );
    endpoint.reject = () => ({ status: 404, code: "XAdminUserNotFound" });
    await expect(readJob(store)).rejects.toThrow(
      "s3://photos/job.json: cannot be used: XAdminUserNotFound (HTTP 404): injected",
    );
    endpoint.reject = () => ({ status: 403, code: "AccessDenied" });
    await expect(store.write("a", "b")).rejects.toThrow("s3://photos/a: access is denied");
    endpoint.reject = () => ({ status: 503, code: "SlowDown" });
    await expect(store.read("a")).rejects.toThrow(
      "s3://photos/a: cannot be used: SlowDown (HTTP 503)",
    );
  });
});
