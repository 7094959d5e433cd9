import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import { UserError } from "../contract/user-error.ts";
import { parseAs } from "./parse.ts";
import type { DeclaredObject, Manifest } from "./terraform-manifests.ts";
import {
  evaluatePath,
  mapStrings,
  resolveText,
  type TerraformResources,
} from "./terraform-text.ts";

/** A `helm_release` of a synthesized file. */
export interface HelmRelease {
  /** `helm_release.x`. */
  readonly address: string;
  readonly name: string;
  readonly namespace: string;
  /** Folder of the chart. */
  readonly chart: string;
  /** YAML documents, the last one counts. */
  readonly values: readonly string[];
}

const releaseBlock = z.object({
  name: z.string().min(1),
  namespace: z.string().min(1).default("default"),
  chart: z.string().min(1),
  repository: z.string().optional(),
  values: z.array(z.string()).default([]),
});

/** The type of a release in Terraform. */
export const releaseType = "helm_release";

/**
 * The Helm releases of a file.
 *
 * @param moduleFolder - Folder of `cdk.tf.json`: what `path.root` stands for.
 * @throws {UserError} for a release of another chart than a folder of this machine.
 */
export function helmReleases(
  resources: TerraformResources,
  shown: string,
  moduleFolder: string,
): readonly HelmRelease[] {
  return Object.entries(resources[releaseType] ?? {}).map(([id, body]) => {
    const address = `${releaseType}.${id}`;
    const { name, namespace, chart, repository, values } = parseAs(
      releaseBlock,
      resolveText(body, resources),
      `${shown}: ${address}`,
    );
    const folder = repository === undefined ? evaluatePath(chart, moduleFolder) : undefined;
    if (folder === undefined) {
      throw new UserError(
        `${shown}: ${address}: chart must be a folder of this machine, got '${chart}'${repository === undefined ? "" : ` of ${repository}`}`,
      );
    }
    return { address, name, namespace, chart: folder, values };
  });
}

/** Helm is not on this machine: what it would render is not known. */
export const helmMissing =
  "helm is not installed on this machine, and the chart of this environment is rendered with it: https://helm.sh/docs/intro/install";

const helmMs = 60_000;

/** Whether there is a `helm` on the PATH. */
export function isHelmInstalled(): boolean {
  return (
    spawnSync("helm", ["version", "--short"], { stdio: "ignore", timeout: helmMs }).status === 0
  );
}

/** Kinds that belong to no namespace. */
const clusterKinds = new Set([
  "Namespace",
  "ClusterRole",
  "ClusterRoleBinding",
  "PriorityClass",
  "RuntimeClass",
  "StorageClass",
  "APIService",
  "CustomResourceDefinition",
]);

/**
 * The objects of a release, as `helm template` renders them; hooks, which are no part of it, left out. What only Terraform
 * knows goes through as the expression that it is.
 *
 * @throws {UserError} one line, without helm, or when the chart refuses its values.
 */
export function renderRelease(release: HelmRelease, shown: string): readonly DeclaredObject[] {
  const { address, name, namespace, chart } = release;
  const expressions: string[] = [];
  // a name stands in for an expression: a schema or a template may look at the text
  const hide = (text: string) =>
    text.replaceAll(/(?<!\$)\$\{(?:[^{}]|\{[^{}]*\})*\}/g, (it) => {
      expressions.push(it);
      return `${standIn}${expressions.length - 1}`;
    });
  const standIns = new RegExp(`${standIn}(\\d+)`, "g");
  const reveal = (value: unknown): unknown =>
    mapStrings(value, (text) =>
      text.replaceAll(standIns, (whole, index) => expressions[Number(index)] ?? whole),
    );
  const files = release.values.map(hide);
  const text = template(
    { name, namespace: hide(namespace), chart, values: files },
    `${shown}: ${address}`,
  );
  return parseAllDocuments(text)
    .map((document) => document.toJS() as Manifest | null)
    .filter((manifest) => manifest !== null)
    .map((manifest) => {
      const inNamespace = clusterKinds.has(manifest.kind)
        ? manifest
        : { ...manifest, metadata: { namespace, ...manifest.metadata } };
      return { address, manifest: reveal(inNamespace) as Manifest };
    });
}

const standIn = "only-terraform-knows-";

function template(
  { name, namespace, chart, values }: Omit<HelmRelease, "address">,
  where: string,
): string {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-helm-"));
  try {
    const options = values.flatMap((text, index) => {
      const file = join(folder, `values-${index}.yaml`);
      writeFileSync(file, text, { mode: 0o600 });
      return ["--values", file];
    });
    const { error, status, stdout, stderr } = spawnSync(
      "helm",
      ["template", name, chart, "--namespace", namespace, "--no-hooks", ...options],
      { encoding: "utf8", timeout: helmMs, maxBuffer: 16 * 2 ** 20 },
    );
    if (error !== undefined && "code" in error && error.code === "ENOENT") {
      throw new UserError(`${where}: ${helmMissing}`);
    }
    if (error !== undefined) throw new UserError(`${where}: helm template: ${error.message}`);
    if (status !== 0) throw new UserError(`${where}: helm template: ${refusal(stderr)}`);
    return stdout;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Helm's own words, on one line. */
function refusal(stderr: string): string {
  const lines = stderr
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !/^(?:WARNING|coalesce|Use --debug)/.test(line));
  return lines.join(" ").replace(/^Error: /, "") || "it said nothing";
}
