import { z } from "zod";
import {
  type HostRequirements,
  hostRequirements,
} from "../../constructs/docker/host-requirements.ts";

const document = z.object({
  resource: z.object({
    terraform_data: z
      .record(z.string(), z.object({ triggers_replace: z.unknown().optional() }))
      .default({}),
  }),
});

/**
 * Requirements of a synthesized environment on its Docker host.
 *
 * @param json - Text of `cdk.tf.json`.
 * @returns undefined if the environment does not run on a Docker host.
 */
export function hostRequirementsIn(json: string): HostRequirements | undefined {
  const { data } = document.safeParse(JSON.parse(json));
  return Object.values(data?.resource.terraform_data ?? {})
    .map(({ triggers_replace }) => hostRequirements.safeParse(triggers_replace).data)
    .find((requirements) => requirements !== undefined);
}

/** Docker endpoint of environments without the setting `host.docker`. */
const localDocker = "unix:///var/run/docker.sock";

/**
 * Notes about ports and GPUs that environments share on the same Docker endpoint: such environments can exist side by side, but
 * usually only one of them can be deployed at a time.
 *
 * @param involved - Environment that every note must name. Defaults to any.
 * @returns One line per group of environments.
 */
export function sharedHostNotes(
  environments: readonly HostRequirements[],
  involved?: string,
): readonly string[] {
  const groups = new Map<string, SharedBy>();
  for (const first of environments) {
    for (const kind of ["port", "GPU"] as const) {
      for (const value of valuesOf[kind](first)) {
        const users = environments.filter(
          (other) =>
            endpointOf(other) === endpointOf(first) && valuesOf[kind](other).includes(value),
        );
        // a group is formed by its first environment
        if (users.length < 2 || users[0] !== first) continue;
        const names = users.map(({ environment }) => environment);
        const group = groups.get(names.join()) ?? {
          endpoint: endpointOf(first),
          names,
          port: [],
          GPU: [],
        };
        group[kind].push(value);
        groups.set(names.join(), group);
      }
    }
  }
  return [...groups.values()]
    .filter(({ names }) => involved === undefined || names.includes(involved))
    .map(noteOf);
}

/** Ports and GPUs of one Docker endpoint that exactly these environments share. */
interface SharedBy {
  readonly endpoint: string;
  readonly names: readonly string[];
  readonly port: (string | number)[];
  readonly GPU: (string | number)[];
}

function noteOf({ endpoint, names, port, GPU }: SharedBy): string {
  const who = `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
  const shared = [...list("port", port), ...list("GPU", GPU)].join(" and ");
  const change = names.length === 2 ? "one of them" : "the others";
  return `${who} share ${shared} of ${endpoint}: deploy one at a time, or change ${change}`;
}

const endpointOf = ({ docker }: HostRequirements) => docker ?? localDocker;

type ValuesOf = (environment: HostRequirements) => readonly (string | number)[];

const valuesOf: Readonly<Record<"port" | "GPU", ValuesOf>> = {
  port: ({ ports }) => [...new Set(ports.map(({ port }) => port))],
  GPU: ({ gpu }) => [...new Set((gpu?.uses ?? []).flatMap(({ gpus }) => gpus))],
};

function list(noun: string, values: readonly (string | number)[]): readonly string[] {
  if (values.length === 0) return [];
  const sorted = [...values].sort((a, b) => Number(a) - Number(b));
  return [`${noun}${values.length === 1 ? "" : "s"} ${sorted.join(", ")}`];
}
