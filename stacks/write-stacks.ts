import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { findingsOf, renderFinding, warningsOf } from "../constructs/checks/findings.ts";
import type { CpuScaling } from "../constructs/checks/kubernetes.ts";
import { EmbedServer } from "../constructs/docker/embed-server.ts";
import type { HostRequirements } from "../constructs/docker/host-requirements.ts";
import { TritonServer } from "../constructs/docker/triton-server.ts";
import { ClusterInference } from "../constructs/kubernetes/cluster-inference.ts";
import { InferenceDeployment } from "../constructs/kubernetes/inference-deployment.ts";
import { InferenceRelease } from "../constructs/kubernetes/inference-release.ts";
import { EnvironmentOutput } from "../constructs/stack/environment-output.ts";
import { App, type TerraformStack } from "../constructs/terraform/cdktf.ts";
import type { Environment } from "../contract/environment.ts";
import { createStack } from "./create-stack.ts";
import { KubernetesStack } from "./kubernetes.ts";
import type { EnvironmentSettings } from "./settings/settings.ts";
import type { RejectedFile } from "./settings/settings-file.ts";
import { sharedNameFindings } from "./settings/shared-names.ts";
import { hostRequirementsIn, sharedHostNotes } from "./shared/shared-hosts.ts";

export interface WriteOptions {
  /** Output folder. */
  readonly outdir: string;
  /** Receives each warning, as one line. */
  readonly warn?: (line: string) => void;
}

/** Content of `clipstack.json`: the checksums show whether a stack was edited by hand. */
export interface SynthManifest {
  readonly schema: 1;
  /** Path inside the folder, and SHA-256 of the file in hexadecimal. */
  readonly stacks: Readonly<Record<string, { readonly file: string; readonly sha256: string }>>;
}

export interface WrittenStacks {
  /** One line for each stack with its services. */
  readonly summaries: readonly string[];
  /** Ports and GPUs that environments share, and commands that build the images of clusters; one line each. */
  readonly notes: readonly string[];
  /** Environments with errors, whose stacks are not written. */
  readonly rejected: readonly RejectedFile[];
  /** Requirements of the environments on Docker hosts. */
  readonly requirements: readonly HostRequirements[];
}

/** Writes the stacks of all environments that the checks accept. */
export function writeStacks(
  environments: readonly EnvironmentSettings[],
  { outdir, warn }: WriteOptions,
): WrittenStacks {
  const app = new App({ outdir });
  const stacks: TerraformStack[] = [];
  const rejected: RejectedFile[] = [];
  for (const environment of environments) {
    const { name } = environment;
    const stack = createStack(app, environment);
    const shared = sharedNameFindings(environment, environments);
    const lines = [
      ...findingsOf(stack),
      ...shared.map((finding) => `${name}: ${renderFinding(finding)}`),
    ];
    if (lines.length === 0) {
      stacks.push(stack);
    } else {
      app.node.tryRemoveChild(name);
      rejected.push({ name, lines });
    }
  }
  if (stacks.length > 0) app.synth();
  for (const warning of warningsOf(app)) warn?.(`warning: ${warning}`);
  if (stacks.length > 0) {
    const manifest = `${JSON.stringify(manifestOf(stacks, outdir), null, 2)}\n`;
    writeFileSync(join(outdir, "clipstack.json"), manifest);
  }
  const requirements = hostRequirementsOf(stacks, outdir);
  return {
    summaries: stacks.map(summary),
    notes: [
      ...sharedHostNotes(requirements),
      ...stacks.flatMap((stack) => (stack instanceof KubernetesStack ? stack.imageNotes : [])),
    ],
    rejected,
    requirements,
  };
}

/** Ports that two services of a rejected environment publish, if its valid settings alone tell. */
export function portLines({ name, valid }: RejectedFile): readonly string[] {
  if (valid === undefined) return [];
  const stack = createStack(new App(), { name, ...valid } as unknown as EnvironmentSettings);
  return findingsOf(stack).filter((line) => {
    const [, service, port, other] =
      /\/([\w-]+): \S+ must be free on the host, got (\d+), which ([\w-]+) /.exec(line) ?? [];
    return port !== undefined && valid.isPort(Number(port), [service!, other!]);
  });
}

/** Path of a stack's Terraform JSON inside the output folder. */
function stackFile(name: string): string {
  return `stacks/${name}/cdk.tf.json`;
}

function hostRequirementsOf(
  stacks: readonly TerraformStack[],
  outdir: string,
): readonly HostRequirements[] {
  return stacks.flatMap(
    ({ node: { id } }) =>
      hostRequirementsIn(readFileSync(join(outdir, stackFile(id)), "utf8")) ?? [],
  );
}

function manifestOf(stacks: readonly TerraformStack[], outdir: string): SynthManifest {
  return {
    schema: 1,
    stacks: Object.fromEntries(
      stacks.map(({ node: { id } }) => {
        const file = stackFile(id);
        const sha256 = createHash("sha256")
          .update(readFileSync(join(outdir, file)))
          .digest("hex");
        return [id, { file, sha256 }];
      }),
    ),
  };
}

/** `multi-gpu-4x: embed, triton-onnx (4 execution instances), …; 4 rtx-4080 of 16376 MiB, 8 $/hour (2026-11)` */
function summary({ node }: TerraformStack): string {
  const services = node.children.flatMap((construct) => {
    if (construct instanceof TritonServer) {
      const count = construct.executionInstances;
      return [`${construct.node.id} (${count} execution instance${count === 1 ? "" : "s"})`];
    }
    if (construct instanceof InferenceDeployment || construct instanceof InferenceRelease) {
      return [podSummary(construct.node.id, construct)];
    }
    if (construct instanceof ClusterInference) {
      return construct.workloads.map((workload) => podSummary(workload.service, workload));
    }
    return construct instanceof EmbedServer ? [construct.node.id] : [];
  });
  const environment = node.children.find((construct) => construct instanceof EnvironmentOutput);
  return `${node.id}: ${[services.join(", "), ...gpus(environment?.value)].join("; ")}`;
}

function podSummary(
  service: string,
  { minReplicas, maxReplicas }: Pick<CpuScaling, "minReplicas" | "maxReplicas">,
): string {
  if (minReplicas < maxReplicas) return `${service} (${minReplicas} to ${maxReplicas} pods)`;
  return `${service} (${minReplicas} pod${minReplicas === 1 ? "" : "s"})`;
}

/** GPUs of an environment: number, model, memory of each and typical price of all. */
function gpus(environment: Environment | undefined): readonly string[] {
  if (environment?.gpu === undefined) return [];
  const { name, count, vramMiB, usdPerHour, priceDate } = environment.gpu;
  return [
    `${count} ${name} of ${vramMiB} MiB, ${Number(usdPerHour.toFixed(2))} $/hour (${priceDate ?? "declared"})`,
  ];
}
