/**
 * Loaded with `node --import` into every child process: ends it when the parent has exited for any reason. File descriptor 3
 * is a pipe that only the parent holds open.
 */
import { Socket } from "node:net";
import { isMainThread } from "node:worker_threads";

const lifelineDescriptor = 3;
const patienceMs = 3_000;

if (isMainThread) {
  const lifeline = new Socket({ fd: lifelineDescriptor, readable: true, writable: false });
  lifeline.once("close", () => {
    process.kill(process.pid, "SIGTERM");
    setTimeout(() => process.kill(process.pid, "SIGKILL"), patienceMs).unref();
  });
  lifeline.on("error", () => {});
  lifeline.resume();
  lifeline.unref();
}
