import { existsSync, readFileSync } from "node:fs";
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
import { parseAs, parseJson } from "../../contract/parse.ts";
import { UserError } from "../../contract/user-error.ts";
import { projectFolder } from "../../model-tools/files/folders.ts";
import { hostRequirementsIn, sharedHostNotes } from "../../stacks/shared/shared-hosts.ts";
import { clusterReportText, examineCluster } from "../cluster/doctor-cluster.ts";
import { terraformNote } from "../host/deployment.ts";
import { DockerError, defaultEndpoint, isReadByProvider } from "../host/docker-command.ts";
import { type DoctorReport, doctorText, reportOf } from "../host/doctor-text.ts";
import { type HostFacts, isUnknown, readHostFacts, type Unknown } from "../host/host-facts.ts";
import { gibibytes, judgeHost } from "../host/host-findings.ts";
import { environmentFiles, synthesizedFile } from "../shared/artefact.ts";
import { problem } from "../shared/host-verdict.ts";
import type { Problem } from "../shared/problem.ts";
import { writeOutput } from "../shared/write-output.ts";

/** Output of `clipstack doctor --json` for a host. */
interface HostReport extends DoctorReport<HostFacts> {
  /** Docker endpoint of the host. */
  readonly docker: string;
}

/** Compares the host of an environment with its requirements. */
export async function examineHost(requirements: HostRequirements): Promise<HostReport> {
  const { environment } = requirements;
  const byDefault = requirements.docker === undefined ? await defaultEndpoint() : undefined;
  const docker = requirements.docker ?? byDefault?.endpoint ?? "";
  const subject = { schema: 1, environment, docker } as const;
  if (byDefault !== undefined && !isReadByProvider(byDefault)) {
    return reportOf(subject, problem(otherContext(docker)));
  }
  try {
    const facts = await readHostFacts({ ...requirements, docker }, projectFolder);
    return reportOf(subject, judgeHost(requirements, facts), facts);
  } catch (error) {
    if (!(error instanceof DockerError)) throw error;
    // kind-local has no setting for the endpoint
    const fix =
      byDefault === undefined
        ? error.problem.fix
        : error.problem.fix.replace("set host.docker to", "set DOCKER_HOST to");
    return reportOf(subject, problem({ ...error.problem, fix }));
  }
}

function otherContext(endpoint: string): Problem {
  return {
    code: "docker-endpoint",
    message: `Docker contexts are not read by Terraform's Docker provider, got a context for ${endpoint}`,
    fix: `run 'export DOCKER_HOST=${endpoint}'`,
  };
}

interface DoctorArguments {
  readonly synth: boolean;
  readonly json?: true;
  readonly output?: string;
}

/** Registers `clipstack doctor`, which lists unmet requirements of a deployment with their fixes. */
export function registerDoctor(program: Command): void {
  program
    .command("doctor")
    .argument("<environment>", "name of an environment, such as single-gpu")
    .option("--no-synth", "use the existing output in cdktf.out")
    .option("--json", "print only the report, as JSON")
    .option("--output <file>", "also write the report to a file, as JSON")
    .addHelpText(
      "after",
      `
Checks Docker, NVIDIA's driver and container toolkit, GPUs, ports, free disk space and the weights, on this machine or over
ssh; for a kind environment also kind; for a cluster: nodes and their GPUs, RuntimeClass, APIs of the autoscaler, quotas and
permissions. Changes nothing. A deployment runs the same checks before it creates anything.

Examples:
  $ npx clipstack doctor single-gpu
  $ npx clipstack doctor multi-gpu-4x --json --output doctor.json
  $ npx clipstack doctor kind-local
  $ npx clipstack doctor k8s-gpu

Exit codes: 0 ready to deploy, 1 unmet requirements, 2 usage or settings error.`,
    )
    .action(doctor);
}

/** Requirements of an environment on its host or cluster. */
export type Requirements =
  | { readonly of: "host"; readonly needs: HostRequirements }
  | { readonly of: "cluster"; readonly needs: ClusterRequirements };

async function doctor(environment: string, args: DoctorArguments): Promise<void> {
  const passed = requirementsFromTerraform();
  const { requirements, notes } =
    passed === undefined
      ? await synthesizedRequirements(environment, args.synth)
      : { requirements: passed, notes: [] };
  const content = passed === undefined ? "all" : "problems";
  const terraform = passed === undefined ? await terraformNote() : undefined;
  const allNotes = terraform === undefined ? notes : [...notes, terraform];
  const { report, text } = await examine(requirements, allNotes, content);
  const json = `${JSON.stringify(report, null, 2)}\n`;
  if (args.output !== undefined) writeOutput(args.output, json);
  if (args.json) process.stdout.write(json);
  else console.log(text);
  process.exitCode = report.ready ? 0 : 1;
}

async function examine(
  requirements: Requirements,
  notes: readonly string[],
  content: "all" | "problems",
) {
  if (requirements.of === "cluster") {
    const examined = await examineCluster(requirements.needs);
    const report = { ...examined, notes: [...examined.notes, ...notes] };
    return { report, text: clusterReportText(report, content) };
  }
  const examined = await examineHost(requirements.needs);
  const report = { ...examined, notes: [...examined.notes, ...notes] };
  return { report, text: reportText(report, requirements.needs, content) };
}

function requirementsFromTerraform(): Requirements | undefined {
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

/** Returns the requirements of an environment, and notes about ports and GPUs that other environments use too. */
async function synthesizedRequirements(environment: string, synth: boolean) {
  const { file, displayPath } = await synthesizedFile(environment, synth);
  const requirements = requirementsIn(readFileSync(file, "utf8"), displayPath);
  if (requirements.of === "cluster") return { requirements, notes: [] };
  const onHosts = environmentFiles([])
    .filter((other) => other.name !== environment && existsSync(other.file) && !other.editedByHand)
    .flatMap((other) => hostRequirementsIn(readFileSync(other.file, "utf8")) ?? []);
  const { needs } = requirements;
  return { requirements, notes: sharedHostNotes([needs, ...onHosts], needs.environment) };
}

/** Part of `cdk.tf.json` with the host check. */
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

/** Reads the requirements of a synthesized environment. */
export function requirementsIn(text: string, displayPath: string): Requirements {
  const { data } = artefactSchema.safeParse(parseJson(text, displayPath));
  for (const { provisioner, triggers_replace } of Object.values(
    data?.resource.terraform_data ?? {},
  )) {
    for (const [variable, of] of Object.entries(variables)) {
      if (provisioner?.some((it) => it["local-exec"]?.environment?.[variable])) {
        return parseRequirements(of, triggers_replace, displayPath);
      }
    }
  }
  throw new UserError(`${displayPath}: must contain a host or cluster check; synthesize it again`);
}

function parseRequirements(
  of: Requirements["of"],
  value: unknown,
  displayPath: string,
): Requirements {
  const input = typeof value === "string" ? parseJson(value, displayPath) : value;
  const schema = of === "host" ? hostRequirements : clusterRequirements;
  const needs = parseAs(schema, input, `${displayPath}: invalid ${of} requirements`);
  return { of, needs } as Requirements;
}

/** Renders the report: everything, or only problems and notes. */
export function reportText(
  report: HostReport,
  requirements: HostRequirements,
  content: "all" | "problems",
): string {
  const facts = report.facts === undefined ? [] : factLines(report.facts, requirements);
  return doctorText(report, report.docker, "on", facts, content);
}

function toolText(version: string | Unknown | undefined): string {
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
    ...(gpu === undefined ? [line("gpus", "none required")] : []),
    ...(facts.kind === undefined ? [] : [line("kind", toolText(facts.kind.kind))]),
    ...(Array.isArray(gpus)
      ? gpus.map((it) =>
          line(
            `gpu ${it.index}`,
            `${it.name}, ${it.memoryMiB} MiB, compute capability ${it.computeCapability}, driver ${it.driver}, ${it.uuid}`,
          ),
        )
      : []),
    line("ports", `${ports.map(({ port }) => port).join(", ")} required`),
    line(
      "disk",
      `${isUnknown(freeMiB) ? "?" : gibibytes(freeMiB)} GiB free at ${engine.rootDir}, ${gibibytes(needed)} required`,
    ),
  ];
}
