import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { App, type TerraformStack } from "../constructs/cdktf.ts";
import { findingsOf, warningsOf } from "../constructs/checks/findings.ts";
import { EmbedServer } from "../constructs/docker/embed-server.ts";
import { TritonServer } from "../constructs/docker/triton-server.ts";
import { EnvironmentOutput } from "../constructs/environment-output.ts";
import { ClusterInference } from "../constructs/kubernetes/cluster-inference.ts";
import { InferenceDeployment } from "../constructs/kubernetes/inference-deployment.ts";
import type { Environment } from "../contract/environment.ts";
import { KindStack } from "./kind.ts";
import { KubernetesStack } from "./kubernetes.ts";
import { MultiGpuStack } from "./multi-gpu.ts";
import { type AllSettings, SettingsError } from "./settings.ts";
import { SingleGpuStack } from "./single-gpu.ts";

export interface WriteOptions {
  /** Folder to write to. */
  readonly outdir: string;
  /** Receives each warning, as one line. */
  readonly warn?: (line: string) => void;
}

/** What `clipstack.json` says: one line a stack, so that an edit by hand is seen. */
export interface SynthManifest {
  readonly schema: 1;
  /** Path inside the folder, and SHA-256 of the file in hexadecimal. */
  readonly stacks: Readonly<Record<string, { readonly file: string; readonly sha256: string }>>;
}

/**
 * Writes the stacks of the environments in `settings`.
 *
 * @returns One line for each stack with its services.
 * @throws {SettingsError} with all findings of the checks; nothing is written then.
 */
export function writeStacks(
  settings: Partial<AllSettings>,
  { outdir, warn }: WriteOptions,
): readonly string[] {
  const app = new App({ outdir });
  const single = settings["single-gpu"];
  const multi = settings["multi-gpu-4x"];
  const kind = settings["kind-local"];
  const k8s = settings["k8s-gpu"];
  const stacks = [
    single && new SingleGpuStack(app, "single-gpu", single),
    multi && new MultiGpuStack(app, "multi-gpu-4x", multi),
    kind && new KindStack(app, "kind-local", kind),
    k8s && new KubernetesStack(app, "k8s-gpu", k8s),
  ].filter((stack) => stack !== undefined);
  const lines = findingsOf(app);
  if (lines.length > 0) throw new SettingsError(lines);
  for (const warning of warningsOf(app)) warn?.(`warning: ${warning}`);
  app.synth();
  writeFileSync(
    join(outdir, "clipstack.json"),
    `${JSON.stringify(manifest(stacks, outdir), null, 2)}\n`,
  );
  return stacks.map(summary);
}

function manifest(stacks: readonly TerraformStack[], outdir: string): SynthManifest {
  return {
    schema: 1,
    stacks: Object.fromEntries(
      stacks.map(({ node: { id } }) => {
        const file = `stacks/${id}/cdk.tf.json`;
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
    if (construct instanceof InferenceDeployment) {
      return [`${construct.node.id} (${construct.minReplicas} to ${construct.maxReplicas} pods)`];
    }
    if (construct instanceof ClusterInference) return construct.summary;
    return construct instanceof EmbedServer ? [construct.node.id] : [];
  });
  const environment = node.children.find((construct) => construct instanceof EnvironmentOutput);
  return `${node.id}: ${[services.join(", "), ...gpus(environment?.value)].join("; ")}`;
}

/** GPUs of an environment, with the memory of each and a typical price of all. */
function gpus(environment: Environment | undefined): readonly string[] {
  if (environment?.gpu === undefined) return [];
  const { name, count, vramMiB, usdPerHour, priceDate } = environment.gpu;
  return [
    `${count} ${name} of ${vramMiB} MiB, ${Number(usdPerHour.toFixed(2))} $/hour (${priceDate})`,
  ];
}
