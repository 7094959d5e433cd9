/**
 * Loaded into every process that the bench starts (`node --import`): ends it when the bench is gone, however that
 * happened. File descriptor 3 is a pipe that only the bench holds; it closes with the bench.
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
