import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { embedBase64Request } from "../contract/embed-api.ts";
import { imagesOfBase64Body } from "./base64-body.ts";
import { EmbedError } from "./errors.ts";

type Verdict =
  | { readonly images: readonly string[] }
  | { readonly status: number; readonly image?: number };

/** What JSON.parse, the schema and a strict decoder say. */
function expected(body: Buffer): Verdict {
  let value: unknown;
  try {
    value = JSON.parse(body.toString("utf8").replace(/^\ufeff/, ""));
  } catch {
    return { status: 400 };
  }
  const result = embedBase64Request.safeParse(value);
  if (!result.success) {
    const [issue] = result.error.issues;
    if (issue?.code === "too_big") return { status: 413 };
    const index = issue?.path[1];
    return typeof index === "number" ? { status: 400, image: index } : { status: 400 };
  }
  const images: string[] = [];
  for (const [image, text] of result.data.images.entries()) {
    const bytes = Buffer.from(text, "base64");
    // what is not written as it would be written again is no strict base64
    if (bytes.toString("base64") !== text) return { status: 400, image };
    images.push(bytes.toString("hex"));
  }
  return { images };
}

async function got(body: Buffer): Promise<Verdict> {
  try {
    const images = await imagesOfBase64Body(Buffer.from(body));
    return { images: images.map((image) => Buffer.from(image).toString("hex")) };
  } catch (error) {
    if (!(error instanceof EmbedError)) throw error;
    const { status, image } = error;
    return image === undefined ? { status } : { status, image };
  }
}

async function expectSame(body: Buffer): Promise<void> {
  const [ours, theirs] = [await got(body), expected(body)];
  // one that is no JSON inside a string of base64 may be named as no base64
  if ("status" in ours && "status" in theirs && theirs.image === undefined) {
    expect(ours.status).toBe(theirs.status);
  } else {
    expect(ours).toEqual(theirs);
  }
}

async function messageOf(body: string | Buffer): Promise<string> {
  const error = await imagesOfBase64Body(Buffer.from(body)).then(
    () => new Error("was taken"),
    (cause: unknown) => cause as Error,
  );
  return error.message;
}

const base64 = fc.uint8Array({ minLength: 1, maxLength: 40 }).map((bytes) => {
  return Buffer.from(bytes).toString("base64");
});
const nearBase64 = fc.oneof(
  { weight: 4, arbitrary: base64 },
  fc
    .tuple(
      base64,
      fc.constantFrom("-", "_", " ", "=", "\n", "é", "\u0000", "/", '"', "\\", "😀"),
      fc.nat(60),
    )
    .map(([text, extra, at]) => text.slice(0, at) + extra + text.slice(at + 1)),
  base64.map((text) => text.slice(1)),
  fc.string({ maxLength: 12 }),
);
const anything = fc.oneof(
  { weight: 6, arbitrary: nearBase64 },
  fc.constantFrom(null, true, 1.5, [], {}, ""),
);
/** How a writer may spell a string. */
const spelling = fc.constantFrom<(text: string) => string>(
  (text) => JSON.stringify(text),
  (text) => JSON.stringify(text).replaceAll("/", "\\/"),
  (text) => JSON.stringify(text).replaceAll("+", "\\u002b"),
  (text) =>
    JSON.stringify(text).replace(
      /[A-Z]/g,
      (c) => `\\u${c.charCodeAt(0).toString(16).padStart(4, "0").toUpperCase()}`,
    ),
);
const space = fc.constantFrom("", "", "", " ", "\n\t", "\r\n  ");
const images = fc
  .tuple(
    fc.oneof(
      fc.array(anything, { maxLength: 5 }),
      fc.array(base64, { minLength: 30, maxLength: 35 }),
    ),
    spelling,
    space,
  )
  .map(([elements, spell, gap]) => {
    const items = elements.map((one) =>
      typeof one === "string" ? spell(one) : JSON.stringify(one),
    );
    return `[${gap}${items.join(`${gap},${gap}`)}${gap}]`;
  });
const field = fc.oneof(
  { weight: 5, arbitrary: images.map((value) => `"images":${value}`) },
  images.map((value) => `"im\\u0061ges" : ${value}`),
  fc
    .tuple(fc.string({ maxLength: 5 }), fc.jsonValue())
    .map(([name, value]) => `${JSON.stringify(name)}:${JSON.stringify(value)}`),
);
const bodies = fc
  .tuple(
    fc.array(field, { maxLength: 3 }),
    space,
    fc.constantFrom("", "", "", " ", "x", "]", "\ufeff"),
  )
  .map(([fields, gap, end]) => `${gap}{${gap}${fields.join(`${gap},`)}}${end}`);

describe("a body of images in base64", () => {
  test("is taken and refused as by JSON.parse and the schema", async () => {
    await fc.assert(
      fc.asyncProperty(bodies, (body) => expectSame(Buffer.from(body))),
      { numRuns: 3_000 },
    );
  });

  test("is taken and refused likewise when some bytes of it are wrong", async () => {
    const changed = fc
      .tuple(
        bodies,
        fc.array(fc.tuple(fc.nat(), fc.nat(255)), { minLength: 1, maxLength: 3 }),
        fc.nat(3),
      )
      .map(([body, changes, kind]) => {
        const bytes = Buffer.from(body);
        for (const [at, value] of changes) bytes[at % bytes.length] = value;
        return kind === 0 ? bytes.subarray(0, changes[0]![0] % bytes.length) : bytes;
      })
      .filter((bytes) => bytes.length > 0);
    await fc.assert(fc.asyncProperty(changed, expectSame), { numRuns: 3_000 });
  });

  test("is refused likewise when it is any JSON", async () => {
    const json = fc.json({ maxDepth: 4 }).map((text) => Buffer.from(text));
    await fc.assert(fc.asyncProperty(json, expectSame), { numRuns: 1_000 });
  });

  test.each(["\\/", "\\u002F", "\\u002f"])("may spell a slash as %s", async (slash) => {
    const text = Buffer.alloc(200_000, 0xff).toString("base64");
    const body = `{"images":["${text.replaceAll("/", slash)}","AAAA"]}`;
    const [first, second] = await imagesOfBase64Body(Buffer.from(body));
    expect(Buffer.alloc(200_000, 0xff).equals(first!)).toBe(true);
    expect(second).toEqual(Buffer.alloc(3));
  });

  test("counts the last of several fields of one name", async () => {
    const taken = await imagesOfBase64Body(Buffer.from('{"images":7,"images":["QUJD"]}'));
    expect(Buffer.concat(taken).toString()).toBe("ABC");
  });

  test("may begin with a byte order mark", async () => {
    expect(await imagesOfBase64Body(Buffer.from('\ufeff{"images":["QUJD"]}'))).toHaveLength(1);
  });

  test("names the position of a wrong character in a long text", async () => {
    const text = Buffer.alloc(300_000, 7).toString("base64");
    const body = `{"images":["QUJD","${text.slice(0, 333_333)} ${text.slice(333_334)}"]}`;
    expect(await messageOf(body)).toBe('image 1 is not base64: unexpected " " at position 333333');
  });

  test.each([
    ['{"images":["QUJD"]', "the body is not valid JSON"],
    ['{"images":["QUJD"]}}', "the body is not valid JSON"],
    ['{"images":["QUJD",]}', "the body is not valid JSON"],
    ['{"images":"QUJD"}', "images: invalid input: expected array, received string"],
    ['{"images":[""]}', "images.0: too small: expected string to have >=1 characters"],
    ['{"images":["QUJD"],"a":1,"b":2}', 'the body: unrecognized keys: "a", "b"'],
    [`{"a":${"[".repeat(600)}`, "the body is not valid JSON: it is nested deeper than 512"],
    [`{"images":["A${" ".repeat(3)}"]}`, 'image 0 is not base64: unexpected " " at position 1'],
  ])("fails on %j", async (body, message) => {
    expect(await messageOf(body)).toBe(message);
  });

  test.each([
    ["one large image", () => `{"images":["${"QUJD".repeat(4_000_000)}"]}`],
    ["one large image with escapes", () => `{"images":["${"QU\\/J".repeat(3_000_000)}"]}`],
    ["a wrong character at its end", () => `{"images":["${"QUJD".repeat(4_000_000)}*AAA"]}`],
    ["many empty strings", () => `{"images":["",${'"",'.repeat(4_000_000)}""]}`],
    ["many fields", () => `{${'"":1,'.repeat(3_000_000)}"a":2}`],
    ["many values", () => `{"a":[${"1,".repeat(6_000_000)}1]}`],
    ["a string without end", () => `{"images":["${"\\n".repeat(8_000_000)}`],
  ])("leaves the event loop to others: %s", async (_, build) => {
    const body = Buffer.from(build());
    let ticks = 0;
    let longest = 0;
    let last = cpuMicroseconds();
    const timer = setInterval(() => {
      longest = Math.max(longest, cpuMicroseconds() - last);
      last = cpuMicroseconds();
      ticks += 1;
    }, 0);
    const startedAt = cpuMicroseconds();
    await imagesOfBase64Body(body).catch(() => {});
    const whole = cpuMicroseconds() - startedAt;
    clearInterval(timer);
    expect(ticks).toBeGreaterThan(2);
    expect(longest).toBeLessThan(Math.max(0.7 * whole, 20_000));
  });
});

/** Of this process: what another process takes of the machine does not count. */
function cpuMicroseconds(): number {
  const { user, system } = process.cpuUsage();
  return user + system;
}
