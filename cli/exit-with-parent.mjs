/**
 * Sends this process SIGTERM when its parent has exited, so that a killed `npx` leaves nothing running. A process that
 * starts without a parent, as a service, is left alone. Plain JavaScript: it is loaded before anything else.
 */
import { readFileSync } from "node:fs";

const intervalMs = 500;

/** Parent of a process. Known on Linux only. */
function parentOf(pid) {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
    // the second field is the name, in parentheses, and may hold spaces
    return Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[1]);
  } catch {
    return undefined;
  }
}

const parent = process.ppid;
// npm starts a command through a shell, which outlives an npm that was killed with SIGKILL
const npm = process.env.npm_command === undefined ? undefined : parentOf(parent);

if (parent > 1) {
  const timer = setInterval(() => {
    const isOrphan = process.ppid !== parent || (npm !== undefined && parentOf(parent) !== npm);
    if (!isOrphan) return;
    clearInterval(timer);
    process.kill(process.pid, "SIGTERM");
  }, intervalMs);
  timer.unref();
}
