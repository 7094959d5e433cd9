import { UserError } from "../../contract/user-error.ts";
import { type HostDrill, type HostRun, type HostService, hostPhases } from "./host-run.ts";

/** File that fills the space. */
const fileName = "clipstack-drill";

/** Fills the writable space of the disturbed container and of the one that receives the load. */
export const diskDrill: HostDrill = {
  name: "disk",
  question: "Are requests answered while the writable space of the servers is full?",
  help: "Fills /tmp of the containers for --seconds. Their file systems are read-only otherwise.",
  async prepare(run) {
    const without = containers(run).find((service) => spacesOf(run, service).length === 0);
    if (without === undefined) return;
    throw new UserError(
      `${without.container} must have a tmpfs of limited size, because the drill would fill the disk of the host otherwise`,
    );
  },
  phases: hostPhases("full", async (run) => {
    for (const service of containers(run)) {
      for (const folder of spacesOf(run, service)) await fill(run, service, folder);
    }
    await run.watch(run.options.seconds);
    await empty(run);
  }),
  restore: empty,
};

function containers(run: HostRun): readonly HostService[] {
  const { entry, disturbed } = run.target;
  return entry.container === disturbed.container ? [entry] : [entry, disturbed];
}

/** Folders in memory with a limited size. */
function spacesOf(run: HostRun, service: HostService): readonly string[] {
  return Object.entries(run.containerOf(service).HostConfig.Tmpfs)
    .filter(([, options]) => /(^|,)size=\d/.test(options))
    .map(([folder]) => folder);
}

async function fill(run: HostRun, { container }: HostService, folder: string): Promise<void> {
  const file = `${folder}/${fileName}`;
  const end = await run.change("exec", container, "sh", "-c", `cat /dev/zero > ${file}`).then(
    () => "no limit was reached",
    (error: Error) => error.message,
  );
  run.check(
    `the space is full: ${container} ${folder}`,
    end.includes("No space left on device"),
    end,
  );
}

async function empty(run: HostRun): Promise<void> {
  for (const service of containers(run)) {
    const files = spacesOf(run, service).map((folder) => `${folder}/${fileName}`);
    const removed = await run.change("exec", service.container, "rm", "-fv", ...files);
    if (removed !== "") run.step(`the space of ${service.container} is free again`);
  }
}
