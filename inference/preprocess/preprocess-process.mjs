// Decodes and resizes the image file on standard input, in a process that can be killed inside libvips. It writes the result to
// standard output or an error message to standard error. Started by preprocess-image.mjs.
import { buffer } from "node:stream/consumers";
import { compileKernel } from "./image-kernel.mjs";
import { createThreadResources, preprocessImage } from "./preprocess-image.mjs";

const task = JSON.parse(process.argv[2]);
// process.exit() waits for libvips
setTimeout(() => process.kill(process.pid, "SIGKILL"), task.timeoutMs).unref();
try {
  const bytes = await buffer(process.stdin);
  const pixels = await preprocessImage(bytes, task, createThreadResources(compileKernel()));
  process.stdout.write(pixels);
} catch (error) {
  process.stderr.write(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
}
