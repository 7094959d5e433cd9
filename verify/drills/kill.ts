import { type HostDrill, hostPhases } from "./host-run.ts";

/** Kills a server as a crash does. `docker kill` would count as a stop by the user, after which the engine does not restart the container. */
export const killDrill: HostDrill = {
  name: "kill",
  question: "Is a killed server restarted, with no accepted request lost?",
  help: "Kills the process of the container with SIGKILL. Its restart policy must start it again.",
  phases: hostPhases("killed", async (run) => {
    const { State } = run.containerOf(run.disturbed);
    // a process cannot be killed from its own process namespace if it is the first one there
    await run.helper(["--pid", "host"], `kill -9 ${State.Pid}`);
    run.step(`${run.disturbed.container}: process ${State.Pid} killed`);
    await run.untilRestarted(run.disturbed);
  }),
};
