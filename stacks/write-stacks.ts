import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { findingsOf, warningsOf } from "../constructs/checks/findings.ts";
import type { HostRequirements } from "../constructs/docker/host-requirements.ts";
import { App, DISABLE_STACK_TRACE_IN_METADATA } from "../constructs/terraform/cdktf.ts";
import { createStack } from "./create-stack.ts";
import type { EnvironmentSettings } from "./settings/settings.ts";
import type { RejectedFile } from "./settings/settings-file.ts";
import { sharedNameFindings } from "./settings/shared-names.ts";
import type { InferenceStack } from "./shared/inference-stack.ts";
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
  /** Notes of one line: ports and GPUs that environments share, and commands that build the images of clusters. */
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
  const app = new App({ outdir, context: { [DISABLE_STACK_TRACE_IN_METADATA]: true } });
  const stacks: InferenceStack[] = [];
  const rejected: RejectedFile[] = [];
  for (const environment of environments) {
    const { name } = environment;
    const stack = createStack(app, environment);
    const shared = sharedNameFindings(environment, environments);
    const lines = [...findingsOf(stack), ...shared.map((finding) => `${name}: ${finding}`)];
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
    summaries: stacks.map(({ summary }) => summary),
    notes: [...sharedHostNotes(requirements), ...stacks.flatMap(({ notes }) => notes)],
    rejected,
    requirements,
  };
}

/** Lines about ports that two services of a rejected environment publish, as far as its valid settings show it. */
export function portLines({ name, valid }: RejectedFile): readonly string[] {
  if (valid === undefined) return [];
  const stack = createStack(new App(), { name, ...valid } as unknown as EnvironmentSettings);
  return stack.portConflicts
    .filter(({ port, services }) => valid.isPort(port, services))
    .map(({ construct, finding }) => `${construct}: ${finding}`);
}

/** Path of a stack's Terraform JSON inside the output folder. */
function stackFile(name: string): string {
  return `stacks/${name}/cdk.tf.json`;
}

function hostRequirementsOf(
  stacks: readonly InferenceStack[],
  outdir: string,
): readonly HostRequirements[] {
  return stacks.flatMap(
    ({ node: { id } }) =>
      hostRequirementsIn(readFileSync(join(outdir, stackFile(id)), "utf8")) ?? [],
  );
}

function manifestOf(stacks: readonly InferenceStack[], outdir: string): SynthManifest {
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
