import { UserError } from "../../contract/user-error.ts";
import { type HostDrill, type HostRun, hostPhases } from "./host-run.ts";

/** Disconnects a container from its networks: packets to it are lost. */
export const networkDrill: HostDrill = {
  name: "network",
  question: "Are requests answered while a server has no network?",
  help: "Disconnects the container from its networks for --seconds, and connects it with its former names and addresses.",
  async prepare(run) {
    if (networksOf(run).length > 0) return;
    throw new UserError(
      `${run.disturbed.container} must be on a Docker network of its own, got network_mode ${run.containerOf(run.disturbed).HostConfig.NetworkMode}`,
    );
  },
  phases: hostPhases("disconnected", async (run) => {
    const { container } = run.disturbed;
    for (const [network] of networksOf(run)) {
      await run.change("network", "disconnect", network, container);
      run.step(`${container} is disconnected from ${network}`);
    }
    await run.watch(run.options.seconds);
    await connect(run);
    await run.untilServing(run.disturbed);
  }),
  restore: connect,
};

function networksOf(run: HostRun) {
  const { HostConfig, NetworkSettings } = run.containerOf(run.disturbed);
  // the networks of the host and of another container cannot be disconnected
  const isShared = /^(host|none|container:.*)$/.test(HostConfig.NetworkMode);
  return isShared ? [] : Object.entries(NetworkSettings.Networks);
}

async function connect(run: HostRun): Promise<void> {
  const { container } = run.disturbed;
  const { Id } = run.containerOf(run.disturbed);
  const connected = (await run.observe()).get(container)?.NetworkSettings.Networks ?? {};
  for (const [network, { Aliases, IPAMConfig }] of networksOf(run)) {
    if (connected[network] !== undefined) continue;
    // the engine adds the short id of the container itself
    const names = Aliases.filter((name) => !Id.startsWith(name));
    const address = IPAMConfig?.IPv4Address ?? "";
    const options = [
      ...names.flatMap((name) => ["--alias", name]),
      ...(address === "" ? [] : ["--ip", address]),
    ];
    await run.change("network", "connect", ...options, network, container);
    run.step(`${container} is connected to ${network}`);
  }
}
