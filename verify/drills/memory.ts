import { setTimeout as sleep } from "node:timers/promises";
import { UserError } from "../../contract/user-error.ts";
import { type HostDrill, type HostRun, hostPhases } from "./host-run.ts";

/** Memory that is left to the container, in bytes. */
const spareBytes = 64 * 2 ** 20;
/** Time until the engine reports the end of a process, in milliseconds. */
const reportMs = 2_000;

/** Fills the memory of a container until the kernel kills a process in it. */
export const memoryDrill: HostDrill = {
  name: "memory",
  question: "Does a server recover from exhausted memory, with no accepted request lost?",
  help: `Lowers the memory limit of the container to 64 MiB above its use, allocates memory in it until the kernel kills a process,
and restores the limit.`,
  async prepare(run) {
    if (limitOf(run).memory > 0) return;
    throw new UserError(
      `${run.disturbed.container} must have a memory limit, because a limit that the drill sets cannot be removed`,
    );
  },
  phases: hostPhases("exhausted", async (run) => {
    const { container } = run.disturbed;
    const usage = Number(
      await run.docker(
        ...["exec", container, "sh", "-c"],
        "cat /sys/fs/cgroup/memory.current /sys/fs/cgroup/memory/memory.usage_in_bytes 2>/dev/null | head -1",
      ),
    );
    const limit = Math.min(limitOf(run).memory, usage + spareBytes);
    await setLimit(run, limit, limit);
    run.step(`memory limit of ${container}: ${Math.round(limit / 2 ** 20)} MiB`);
    const allocate = `head -c ${limit} /dev/zero | tail -c ${limit} >/dev/null`;
    const failure = await run.change("exec", container, "sh", "-c", allocate).then(
      () => "",
      (error: Error) => error.message,
    );
    await restoreLimit(run);
    await sleep(reportMs, undefined, { signal: run.signal });
    const state = (await run.observe()).get(container)?.State;
    const isSame = state?.StartedAt === run.containerOf(run.disturbed).State.StartedAt;
    const killed = isSame && state?.Status === "running" ? "the allocating process" : "the server";
    run.step(failure === "" ? "no process was killed" : `the kernel killed ${killed}`);
    await (killed === "the server"
      ? run.untilRestarted(run.disturbed)
      : run.untilServing(run.disturbed));
  }),
  restore: restoreLimit,
};

function limitOf(run: HostRun): { readonly memory: number; readonly swap: number } {
  const { Memory, MemorySwap } = run.containerOf(run.disturbed).HostConfig;
  return { memory: Memory, swap: MemorySwap };
}

async function restoreLimit(run: HostRun): Promise<void> {
  const { memory, swap } = limitOf(run);
  const now = (await run.observe()).get(run.disturbed.container)?.HostConfig.Memory;
  if (now === memory) return;
  await setLimit(run, memory, swap);
  run.step(`memory limit of ${run.disturbed.container}: ${Math.round(memory / 2 ** 20)} MiB`);
}

async function setLimit(run: HostRun, memory: number, swap: number): Promise<void> {
  const { container } = run.disturbed;
  await run.change("update", `--memory=${memory}`, `--memory-swap=${swap}`, container);
}
