import { z } from "zod";
import { type HostRequirements, hostRequirements } from "../constructs/docker/host-requirements.ts";

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
 * Notes about ports and GPUs that `environment` shares with others on the same Docker endpoint: such environments can
 * exist side by side, but usually only one of them can be deployed at a time.
 *
 * @returns One line per other environment.
 */
export function sharedHostNotes(
  environment: HostRequirements,
  others: readonly HostRequirements[],
): readonly string[] {
  const endpoint = environment.docker ?? localDocker;
  return others
    .filter((other) => (other.docker ?? localDocker) === endpoint)
    .flatMap((other) => {
      const shared = [
        ...list("port", portsOf(environment).filter(isIn(portsOf(other)))),
        ...list("GPU", gpusOf(environment).filter(isIn(gpusOf(other)))),
      ];
      return shared.length === 0
        ? []
        : [
            `${environment.environment} and ${other.environment} share ${shared.join(" and ")} of ${endpoint}: deploy one at a time, or change one of them`,
          ];
    });
}

const isIn =
  <T>(values: readonly T[]) =>
  (value: T) =>
    values.includes(value);

const portsOf = ({ ports }: HostRequirements) => ports.map(({ port }) => port);

const gpusOf = ({ gpu }: HostRequirements) => [
  ...new Set((gpu?.uses ?? []).flatMap(({ gpus }) => gpus)),
];

function list(noun: string, values: readonly (string | number)[]): readonly string[] {
  if (values.length === 0) return [];
  const sorted = [...values].sort((a, b) => Number(a) - Number(b));
  return [`${noun}${values.length === 1 ? "" : "s"} ${sorted.join(", ")}`];
}
