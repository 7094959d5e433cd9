import { readFileSync } from "node:fs";
import type { Command } from "commander";
import { z } from "zod";
import {
  type HostRequirements,
  hostRequirements,
  hostRequirementsVariable,
} from "../../constructs/docker/host-requirements.ts";
import {
  type ClusterRequirements,
  clusterRequirements,
  clusterRequirementsVariable,
} from "../../constructs/kubernetes/cluster-requirements.ts";
import { UserError } from "../../contract/user-error.ts";
import { synthesizedFile } from "../artefact.ts";
import { clusterReportText, examineCluster } from "../cluster/doctor-cluster.ts";
import { DockerError, defaultEndpoint, isFoundByProvider } from "../host/docker-command.ts";
import { doctorText } from "../host/doctor-text.ts";
import { type HostFacts, isUnknown, readHostFacts, type Unknown } from "../host/host-facts.ts";
import { giB, judgeHost } from "../host/host-findings.ts";
import type { Problem } from "../problem.ts";
import { project } from "../project.ts";
import { writeOutput } from "../write-output.ts";

/** What `clipstack doctor --json` prints. */
export interface DoctorReport {
  /** Bumped when a field changes meaning. */
  readonly schema: 1;
  readonly environment: string;
  /** Docker endpoint of the host. */
  readonly docker: string;
  /** Whether the environment can be deployed. */
  readonly ready: boolean;
  readonly problems: readonly Problem[];
  /** What could not be seen, or may be meant. */
  readonly notes: readonly string[];
  /** Absent where the host could not be reached. */
  readonly facts?: HostFacts;
}

/** Look at the host of an environment, and judge it. */
export async function examine(requirements: HostRequirements): Promise<DoctorReport> {
  const { environment } = requirements;
  const found = requirements.docker === undefined ? await defaultEndpoint() : undefined;
  const docker = requirements.docker ?? found?.endpoint ?? "";
  const subject = { schema: 1, environment, docker } as const;
  if (found !== undefined && !isFoundByProvider(found)) {
    return { ...subject, ready: false, problems: [otherContext(docker)], notes: [] };
  }
  try {
    const facts = await readHostFacts({ ...requirements, docker }, project);
    const { problems, notes } = judgeHost(requirements, facts);
    return { ...subject, ready: problems.length === 0, problems, notes, facts };
  } catch (error) {
    if (!(error instanceof DockerError)) throw error;
    // where there is no setting for the endpoint, the environment has it
    const fix =
      found === undefined
        ? error.problem.fix
        : error.problem.fix.replace("set host.docker to", "export DOCKER_HOST with");
    return { ...subject, ready: false, problems: [{ ...error.problem, fix }], notes: [] };
  }
}

function otherContext(endpoint: string): Problem {
  return {
    code: "docker-endpoint",
    message: `a docker context names ${endpoint}, which Terraform's docker provider does not read`,
    fix: `name it for both: 'export DOCKER_HOST=${endpoint}'`,
  };
}

interface DoctorArguments {
  readonly synth: boolean;
  readonly json?: true;
  readonly output?: string;
}

/** `clipstack doctor`: can this environment be deployed on its host, and if not, what must be done? */
export function registerDoctor(program: Command): void {
  program
    .command("doctor")
    .argument("<environment>", "single-gpu, multi-gpu-4x, kind-local or k8s-gpu")
    .option("--no-synth", "take the requirements from what lies in cdktf.out")
    .option("--json", "print the report, and nothing else, on stdout")
    .option("--output <file>", "write the report to a file as well, as JSON")
    .addHelpText(
      "after",
      `
Looks at Docker (with the docker command line), NVIDIA's driver and container toolkit, GPUs, ports, free disk and the
weights, on this machine or over ssh; for kind-local at kind too; for k8s-gpu at the cluster: nodes
and their GPUs, RuntimeClass, APIs of the autoscaler, quota, rights. Changes nothing. A deployment asks the same before it
makes anything.

Examples:
  $ npx clipstack doctor single-gpu
  $ npx clipstack doctor multi-gpu-4x --json --output doctor.json
  $ npx clipstack doctor kind-local
  $ npx clipstack doctor k8s-gpu

Exit codes: 0 ready to deploy, 1 something must be done first, 2 wrong usage or settings.`,
    )
    .action(doctor);
}

/** What an environment needs, of a host or of a cluster. */
export type Requirements =
  | { readonly of: "host"; readonly needs: HostRequirements }
  | { readonly of: "cluster"; readonly needs: ClusterRequirements };

async function doctor(environment: string, args: DoctorArguments): Promise<void> {
  const given = givenRequirements();
  const requirements = given ?? (await synthesizedRequirements(environment, args.synth));
  const what = given === undefined ? "all" : "problems";
  const { report, text } = await reportOf(requirements, what);
  const json = `${JSON.stringify(report, null, 2)}\n`;
  if (args.output !== undefined) writeOutput(args.output, json);
  if (args.json) process.stdout.write(json);
  else console.log(text);
  process.exitCode = report.ready ? 0 : 1;
}

async function reportOf(requirements: Requirements, what: "all" | "problems") {
  if (requirements.of === "cluster") {
    const report = await examineCluster(requirements.needs);
    return { report, text: clusterReportText(report, what) };
  }
  const report = await examine(requirements.needs);
  return { report, text: reportText(report, requirements.needs, what) };
}

/** What Terraform hands over. */
function givenRequirements(): Requirements | undefined {
  for (const [variable, of] of Object.entries(variables)) {
    const text = process.env[variable];
    if (text !== undefined) return parseRequirements(of, text, variable);
  }
  return undefined;
}

const variables = {
  [hostRequirementsVariable]: "host",
  [clusterRequirementsVariable]: "cluster",
} as const;

async function synthesizedRequirements(environment: string, synth: boolean): Promise<Requirements> {
  const { file, shown } = await synthesizedFile(environment, synth);
  return requirementsIn(readFileSync(file, "utf8"), shown);
}

/** The part of `cdk.tf.json` that the host check is in. */
const artefactSchema = z.object({
  resource: z.object({
    terraform_data: z
      .record(
        z.string(),
        z.object({
          triggers_replace: z.unknown().optional(),
          provisioner: z
            .array(
              z
                .object({
                  "local-exec": z
                    .object({ environment: z.record(z.string(), z.string()) })
                    .partial(),
                })
                .partial(),
            )
            .optional(),
        }),
      )
      .optional(),
  }),
});

/**
 * What the check of a synthesized environment asks for.
 *
 * @param shown - Name of the file, for messages.
 * @throws {UserError}
 */
export function requirementsIn(text: string, shown: string): Requirements {
  const { data } = artefactSchema.safeParse(parseJson(text, shown));
  for (const { provisioner, triggers_replace } of Object.values(
    data?.resource.terraform_data ?? {},
  )) {
    for (const [variable, of] of Object.entries(variables)) {
      if (provisioner?.some((it) => it["local-exec"]?.environment?.[variable])) {
        return parseRequirements(of, triggers_replace, shown);
      }
    }
  }
  throw new UserError(
    `${shown} has no check of a host or a cluster: it was synthesized by another version`,
  );
}

function parseRequirements(of: Requirements["of"], value: unknown, shown: string): Requirements {
  const input = typeof value === "string" ? parseJson(value, shown) : value;
  const result =
    of === "host" ? hostRequirements.safeParse(input) : clusterRequirements.safeParse(input);
  if (result.success) return { of, needs: result.data } as Requirements;
  const [issue] = result.error.issues;
  throw new UserError(
    `${shown}: the requirements of the ${of} cannot be read: ${issue?.path.join(".")}: ${issue?.message}`,
  );
}

function parseJson(text: string, shown: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new UserError(`${shown}: must be JSON`);
  }
}

/** What a person reads; with `problems` what a deployment shows. */
export function reportText(
  report: DoctorReport,
  requirements: HostRequirements,
  what: "all" | "problems",
): string {
  const facts = report.facts === undefined ? [] : factLines(report.facts, requirements);
  return doctorText({ ...report, where: report.docker, preposition: "on", facts }, what);
}

function shownTool(version: string | Unknown | undefined): string {
  if (version === undefined) return "not installed";
  return isUnknown(version) ? "?" : version;
}

function factLines(facts: HostFacts, { gpu, ports, disk }: HostRequirements): readonly string[] {
  const { engine, freeMiB, images, nvidia } = facts;
  const line = (name: string, text: string) => `  ${name.padEnd(8)} ${text}`;
  const needed = disk
    .filter(({ image }) => image === undefined || !images.includes(image))
    .reduce((sum, { miB }) => sum + miB, 0);
  const gpus = nvidia?.gpus;
  return [
    line("docker", `${engine.version}, ${engine.osType} ${engine.architecture}`),
    ...(gpu === undefined ? [line("gpus", "none needed")] : []),
    ...(facts.kind === undefined ? [] : [line("kind", shownTool(facts.kind.kind))]),
    ...(Array.isArray(gpus)
      ? gpus.map((it) =>
          line(
            `gpu ${it.index}`,
            `${it.name}, ${it.memoryMiB} MiB, compute capability ${it.computeCapability}, driver ${it.driver}, ${it.uuid}`,
          ),
        )
      : []),
    line("ports", `${ports.map(({ port }) => port).join(", ")} needed`),
    line(
      "disk",
      `${isUnknown(freeMiB) ? "?" : giB(freeMiB)} GiB free at ${engine.rootDir}, ${giB(needed)} needed`,
    ),
  ];
}
