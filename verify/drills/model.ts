import { UserError } from "../../contract/user-error.ts";
import { type HostDrill, type HostRun, hostPhases, isReady } from "./host-run.ts";

const mountedAt = "/weights";
/** Suffix of the intact file during the drill. */
const intact = ".clipstack-drill";

/** Replaces a model file with an invalid one, and restarts the server. */
export const modelDrill: HostDrill = {
  name: "model",
  question:
    "Is a corrupt model file rejected at the start, while others serve or requests are rejected readably?",
  help: `Replaces the largest model file of the container with an invalid one, restarts the container, which must not become healthy, and
restores the file. Other containers that mount the same volume keep the file that they have loaded.`,
  async prepare(run) {
    if (weightsOf(run) !== undefined) return;
    throw new UserError(
      `${run.disturbed.container} must have a mounted volume or folder with weights`,
    );
  },
  phases: hostPhases("corrupt", async (run) => {
    const { container } = run.disturbed;
    // renamed, because servers may have mapped the file into memory
    const script = `cd ${mountedAt} && file=$(find . -type f -size +1k ! -name '*${intact}' -exec ls -S {} + | head -1) && mv "$file" "$file${intact}" && echo invalid > "$file" && echo "$file"`;
    const file = await run.helper(volume(run), script);
    run.step(`model file ${file} is replaced with an invalid one`);
    await run.change("restart", container);
    const restarted = performance.now();
    let hasServed = false;
    await run.until(
      `${container} has stopped or failed its health check`,
      run.startSeconds(run.disturbed),
      (now) => {
        const state = now.get(container);
        hasServed ||= isReady(state);
        const hasFailed =
          state?.State.Status !== "running" || state.State.Health?.Status === "unhealthy";
        return (
          hasServed || (hasFailed && performance.now() - restarted > run.options.seconds * 1_000)
        );
      },
    );
    run.check(
      "a corrupt model file is rejected",
      !hasServed,
      hasServed ? `${container} became healthy` : `${container} did not become healthy`,
    );
    await repair(run);
    await run.untilRestarted(run.disturbed);
  }),
  restore: repair,
};

/** First mount of a model file: a volume, or a folder of the host. */
function weightsOf(run: HostRun): string | undefined {
  const { Mounts } = run.containerOf(run.disturbed);
  const mount = Mounts.find(({ Destination, RW }) => /\/\d+$/.test(Destination) && !RW);
  return mount && (mount.Name ?? mount.Source);
}

function volume(run: HostRun): readonly string[] {
  return ["--volume", `${weightsOf(run)}:${mountedAt}`];
}

async function repair(run: HostRun): Promise<void> {
  const script = `cd ${mountedAt} && find . -name '*${intact}' | while read -r file; do mv "$file" "\${file%${intact}}" && echo "$file"; done`;
  const repaired = await run.helper(volume(run), script);
  if (repaired === "") return;
  run.step("the model file is restored");
  await run.change("restart", run.disturbed.container);
}
