/** Runs one load in a separate process: `tsx load-main.ts FILE`, with a {@link LoadFile} written by `v8.serialize`. Prints JSON. */
import { readFileSync } from "node:fs";
import { deserialize } from "node:v8";
import { measureLoad } from "../../target/load/measure-load.ts";
import type { LoadFile } from "./run-load.ts";

const { requests, options }: LoadFile = deserialize(readFileSync(process.argv[2] ?? ""));
const measured = await measureLoad(requests, { ...options, signal: new AbortController().signal });
console.log(JSON.stringify({ ...measured, histogram: [] }));
