import { type HostDrill, type HostRun, hostPhases } from "./host-run.ts";

/** Pauses a container: its connections stay open, and nothing is answered. */
export const freezeDrill: HostDrill = {
  name: "freeze",
  question: "Are requests answered while a server is silent?",
  help: "Pauses the container for --seconds: its connections stay open without an answer.",
  phases: hostPhases("frozen", async (run) => {
    await run.change("pause", run.disturbed.container);
    run.step(`${run.disturbed.container} is paused`);
    await run.watch(run.options.seconds);
    await unpause(run);
    await run.untilServing(run.disturbed);
  }),
  restore: unpause,
};

async function unpause(run: HostRun): Promise<void> {
  const { container } = run.disturbed;
  const state = (await run.observe()).get(container)?.State;
  if (state?.Status !== "paused") return;
  await run.change("unpause", container);
  run.step(`${container} is unpaused`);
}
