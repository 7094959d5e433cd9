import { crc32, deflateSync } from "node:zlib";
import sharp from "sharp";
import { expect, test } from "vitest";
import { pixelChunks } from "./pixel-chunks.mjs";
import { preprocess } from "./preprocess.ts";
import { picture } from "./test-images.ts";
import { squareInput } from "./test-inputs.ts";

async function decoded(file: Uint8Array): Promise<Buffer> {
  return Buffer.from(await preprocess(file, squareInput(64), { maxPixels: 1_000_000 }));
}

/** PNG file with chunks after its header. */
async function png(...chunks: readonly Buffer[]): Promise<Buffer> {
  const file = await sharp(await picture("png"), { failOn: "none" })
    .png({ palette: true })
    .toBuffer();
  return Buffer.concat([file.subarray(0, 33), ...chunks, file.subarray(33)]);
}

function pngChunk(name: string, content: Buffer): Buffer {
  const named = Buffer.concat([Buffer.from(name), content]);
  const [length, checksum] = [Buffer.alloc(4), Buffer.alloc(4)];
  length.writeUInt32BE(content.length);
  checksum.writeUInt32BE(crc32(named));
  return Buffer.concat([length, named, checksum]);
}

function webpChunk(name: string, content: Buffer): Buffer {
  const head = Buffer.alloc(8);
  head.write(name);
  head.writeUInt32LE(content.length, 4);
  return Buffer.concat([head, content, Buffer.alloc(content.length % 2)]);
}

/** Animation with frames of one pixel at the top left, after a first frame of the whole canvas. */
async function animation(frames: number): Promise<Buffer> {
  const frame = async (side: number) => {
    const file = await sharp({
      create: { width: side, height: side, channels: 3, background: "#804020" },
    })
      .webp({ lossless: true })
      .toBuffer();
    const head = Buffer.alloc(16);
    head.writeUIntLE(side - 1, 6, 3);
    head.writeUIntLE(side - 1, 9, 3);
    return webpChunk("ANMF", Buffer.concat([head, file.subarray(12)]));
  };
  const canvas = Buffer.alloc(10);
  canvas[0] = 2;
  canvas.writeUIntLE(63, 4, 3);
  canvas.writeUIntLE(63, 7, 3);
  const first = await frame(64);
  const others = Array<Buffer>(frames - 1).fill(await frame(1));
  const chunks = [webpChunk("VP8X", canvas), webpChunk("ANIM", Buffer.alloc(6)), first, ...others];
  return webpChunk("RIFF", Buffer.concat([Buffer.from("WEBP"), ...chunks]));
}

test("removes only chunks that do not change the pixels", async () => {
  const plain = await png();
  const text = pngChunk("tEXt", Buffer.from("a\0b"));
  const withTexts = await png(text, text, pngChunk("zTXt", Buffer.from("a\0\0x")));
  expect(pixelChunks(withTexts, "png")).toEqual(pixelChunks(plain, "png"));
  expect(await decoded(withTexts)).toEqual(await decoded(plain));
  const [one, several] = [await animation(1), await animation(5)];
  expect(pixelChunks(several, "webp")).toEqual(one);
  expect(await decoded(several)).toEqual(await decoded(one));
});

test("returns a file of pixels as it is", async () => {
  for (const type of ["png", "webp"] as const) {
    const file = pixelChunks(await picture(type), type);
    expect(pixelChunks(file, type)).toBe(file);
  }
});

test("rejects a PNG with too many chunks", async () => {
  const file = await png(Buffer.concat(Array(50_000).fill(pngChunk("tEXt", Buffer.alloc(0)))));
  await expect(decoded(file)).rejects.toThrow("cannot be decoded: it has more than 50000 chunks");
});

test("decodes the pixels of a PNG without decompressing its texts, which would exceed the deadline", async () => {
  const zeros = deflateSync(Buffer.alloc(5e7));
  const text = pngChunk("zTXt", Buffer.concat([Buffer.from("a\0\0"), zeros]));
  const file = await png(Buffer.concat(Array(300).fill(text)));
  expect(await decoded(file)).toEqual(await decoded(await png()));
});

test("decodes the first frame of a long animation", async () => {
  const [short, long] = [await animation(1), await animation(49_000)];
  const expected = await decoded(short);
  const startedAt = performance.now();
  expect(await decoded(long)).toEqual(expected);
  expect(performance.now() - startedAt).toBeLessThan(4_000);
});
