/** Runs a Triton server that computes nothing for the default model; prints its target and ends with its parent. */
import { defaultModel } from "../../contract/models/index.ts";
import { startNullTriton } from "./null-triton.ts";

const { target } = await startNullTriton(defaultModel);
console.log(target);
