// How urgent the threads of a server are to the scheduler. Plain JavaScript, for the workers.
import { readlinkSync } from "node:fs";
import { getPriority, setPriority } from "node:os";

/**
 * Nice values: what is smaller is more urgent. The event loop has that of the process, 0, since it only keeps others busy:
 * a health check must not wait for a batch to be computed. The runtime comes before decoding, since its threads wait for
 * each other; what is decoded meanwhile waits for the end of the batch anyway.
 */
export const niceness = { runtime: 5, decoding: 15 };

/**
 * Make the calling thread less urgent, and the threads that it starts from now on. Linux keeps a nice value for each
 * thread; elsewhere nothing happens.
 *
 * @param {number} nice - 0 to 19; where the thread is less urgent already, it stays so
 */
export function lowerPriority(nice) {
  if (process.platform !== "linux") return;
  try {
    // <process>/task/<thread>
    const thread = Number(readlinkSync("/proc/thread-self").split("/").at(-1));
    if (getPriority(thread) < nice) setPriority(thread, nice);
  } catch {
    // a sandbox may hide /proc or refuse the call: the thread is as urgent as the others then
  }
}
