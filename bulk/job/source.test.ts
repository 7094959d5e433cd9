import { mkdir, symlink, writeFile } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { buffer } from "node:stream/consumers";
import { type Header, pack } from "tar-stream";
import { beforeEach, expect, onTestFinished, test } from "vitest";
import { filesIn, plannedJob, temporaryFolder } from "../test-job.ts";
import { listSource, openSourceReader } from "./source.ts";

let folder: string;
beforeEach(async () => {
  folder = await temporaryFolder();
});

async function tarOf(
  members: readonly (string | (Partial<Header> & Pick<Header, "name">))[],
): Promise<Buffer> {
  const tar = pack();
  for (const member of members) {
    if (typeof member === "string") tar.entry({ name: member }, member);
    else tar.entry(member);
  }
  tar.finalize();
  return await buffer(tar);
}

/** Contents of the images of a URI, and the reasons of those that cannot be read. */
async function imagesOf(uri: string, maxBytes?: number): Promise<readonly string[]> {
  const found: string[] = [];
  const images = openSourceReader(10, maxBytes).images({ uri, bytes: 0, etag: "" });
  try {
    for await (const { read } of images) {
      const content = await read().catch(({ message }: Error) => Buffer.from(message));
      found.push(Buffer.from(content).toString().replace(`${uri}: `, ""));
    }
  } catch (error) {
    found.push((error as Error).message.replace(`${uri}: `, ""));
  }
  return found;
}

test.skipIf(process.platform !== "linux")(
  "lists images that cannot be read, so that they are errors, and no hidden ones",
  async () => {
    await symlink("nowhere", join(folder, "link.jpg"));
    await symlink("loop.jpg", join(folder, "loop.jpg"));
    await mkdir(join(folder, ".thumbnails"));
    for (const name of ["._a.jpg", ".thumbnails/a.jpg"]) await writeFile(join(folder, name), "");
    for (const byte of [0xfe, 0xff]) {
      await writeFile(
        Buffer.concat([Buffer.from(`${folder}/x`), Buffer.from([byte]), Buffer.from(".jpg")]),
        "",
      );
    }
    const reasons: string[] = [];
    for await (const { uri } of listSource(folder)) reasons.push(...(await imagesOf(uri)));
    expect(reasons).toEqual(["does not exist", "cannot be used: ELOOP", "its name must be UTF-8"]);
  },
);

test.each([
  ["a hidden file", ["./a.jpg", "./._a.jpg", "a.json"], ["./a.jpg"]],
  [
    "links",
    ["a.jpg", { name: "b.jpg", type: "link", linkname: "a.jpg" } as const],
    ["a.jpg", "members must be files, got a link"],
  ],
  [
    "a repeated name",
    ["a.jpg", "b.jpg", "a.jpg"],
    ["a.jpg", "b.jpg", "names of images must differ, got 'a.jpg' twice"],
  ],
  ["no images", ["a.json"], ["must contain images, got none"]],
  ["a large file", ["a.jpg", "large.jpg"], ["a.jpg", "has 9 bytes, more than the limit of 8"]],
])("reads a tar file with %s", async (_, members, expected) => {
  const file = join(folder, "a.tar");
  await writeFile(file, await tarOf(members));
  expect(await imagesOf(file, 8)).toEqual(expected);
});

test("reads a tar file of the oldest format, without a magic number", async () => {
  const tar = await tarOf(["a.jpg"]);
  tar.fill(0, 257, 512);
  tar.write("        ", 148);
  const checksum = tar.subarray(0, 512).reduce((sum, byte) => sum + byte, 0);
  tar.write(`${checksum.toString(8).padStart(6, "0")}\0 `, 148);
  await writeFile(join(folder, "a.tar"), tar);
  expect(await imagesOf(join(folder, "a.tar"))).toEqual(["a.jpg"]);
});

test("reads images and tar files of a web server, and tries again what it throttles or interrupts", async () => {
  const tar = await tarOf(["a.jpg", "b.jpg"]);
  const seen = new Set<string>();
  const server = createServer(({ url = "" }, response) => {
    const isFirst = !seen.has(url);
    seen.add(url);
    if (url === "/none.jpg") response.writeHead(404).end();
    else if (url === "/busy.jpg" && isFirst) response.writeHead(503).end();
    else if (url === "/a.tar") {
      response.writeHead(200, { "content-length": tar.length });
      if (isFirst) response.write(tar.subarray(0, 1_536), () => response.destroy());
      else response.end(tar);
    } else response.end("image");
  }).listen(0);
  onTestFinished(() => void server.close());
  const base = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  expect(await imagesOf(`${base}/busy.jpg`)).toEqual(["image"]);
  expect(await imagesOf(`${base}/a.tar`)).toEqual(["a.jpg", "b.jpg"]);
  expect(await imagesOf(`${base}/none.jpg`)).toEqual(["cannot be downloaded: HTTP 404"]);
});

test.each([
  [
    "a.csv",
    "uri,etag\n/a.jpg\n",
    /a\.csv: must be a CSV file: Invalid Record Length: .* on line 2$/,
  ],
  ["a.parquet", "none", /a\.parquet: must be a Parquet file: /],
  [
    "a.csv",
    "uri\ns3://bucket/\n",
    /a\.csv: uri must be an absolute path, .* got 's3:\/\/bucket\/'$/,
  ],
  ["a.csv", "uri\ns3://Bucket_1/a.jpg\n", /got 's3:\/\/Bucket_1\/a\.jpg'$/],
  ["a.jpg", "none", /a\.jpg: must be a folder, got a file$/],
])("fails if %s contains %j", async (name, content, message) => {
  const [source, job] = [join(folder, name), await temporaryFolder()];
  await writeFile(source, content);
  await expect(plannedJob(source, job)).rejects.toThrow(message);
  await expect(plannedJob(source, job)).rejects.toMatchObject({ name: "UserError" });
  expect(await filesIn(job)).toEqual([]);
});
