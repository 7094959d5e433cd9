import { isUtf8 } from "node:buffer";
import { WireError } from "./wire.ts";

/** Maximum size of JSON in a request, in bytes. Larger tensors are sent as binary data. */
export const maxJsonBytes = 16 * 1024 * 1024;

/**
 * Maximum number of arrays, objects and members in a request. 16 MiB of `{},` take 1 GB once parsed; a batch of 32 images
 * nested by channel and row has 21,600 arrays.
 */
const maxStructure = 100_000;

/** Maximum nesting depth in a request, because schemas validate by recursion. Tensors have at most ten levels. */
const maxDepth = 64;

const longestMessage = 200;

/**
 * A byte order mark is ignored, as by Triton.
 *
 * @throws {WireError} if the bytes are not UTF-8 or not JSON
 */
export function parseJson(bytes: Buffer): unknown {
  if (!isUtf8(bytes)) throw new WireError("failed to parse JSON: it is not UTF-8");
  try {
    return JSON.parse(bytes.toString("utf8").replace(/^\ufeff/, ""));
  } catch (error) {
    // the message of JSON.parse quotes the text
    const reason = (error as Error).message.replaceAll(/\s+/g, " ").slice(0, longestMessage);
    throw new WireError(`failed to parse JSON: ${reason}`);
  }
}

/** @throws {WireError} like {@link parseJson}, or beyond {@link maxDepth}; `too_large` above {@link maxJsonBytes} or {@link maxStructure} */
export function parseRequestJson(bytes: Buffer): unknown {
  if (bytes.byteLength > maxJsonBytes) {
    throw new WireError(
      `JSON must be at most ${maxJsonBytes} bytes, got ${bytes.byteLength}: send tensors as binary data`,
      "too_large",
    );
  }
  checkStructure(bytes);
  return parseJson(bytes);
}

/** Counts `[`, `{` and `:`, including those in strings, because `JSON.parse` has no limits. */
function checkStructure(bytes: Buffer): void {
  let count = 0;
  for (const character of ["[", "{", ":"]) {
    const code = character.charCodeAt(0);
    for (let at = bytes.indexOf(code); at >= 0; at = bytes.indexOf(code, at + 1)) {
      count += 1;
      if (count <= maxStructure) continue;
      throw new WireError(
        `JSON must have at most ${maxStructure} arrays, objects and members, got more`,
        "too_large",
      );
    }
  }
  if (count > maxDepth) checkDepth(bytes);
}

function checkDepth(bytes: Buffer): void {
  let depth = 0;
  let isString = false;
  for (let at = 0; at < bytes.length; at++) {
    const character = bytes[at];
    if (isString && character === 0x5c) at += 1;
    else if (character === 0x22) isString = !isString;
    else if (isString) continue;
    else if (character === 0x5b || character === 0x7b) depth += 1;
    else if (character === 0x5d || character === 0x7d) depth -= 1;
    if (depth <= maxDepth) continue;
    throw new WireError(`JSON must be nested at most ${maxDepth} levels deep, got more`);
  }
}
