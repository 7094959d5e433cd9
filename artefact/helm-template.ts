import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import { parseAs } from "../contract/parse.ts";
import { UserError } from "../contract/user-error.ts";
import type { DeclaredObject, Manifest } from "./terraform-manifests.ts";
import {
  evaluatePath,
  mapStrings,
  resolveText,
  type TerraformResources,
} from "./terraform-text.ts";

/** `helm_release` of a synthesized file. */
export interface HelmRelease {
  /** `helm_release.x`. */
  readonly address: string;
  readonly name: string;
  readonly namespace: string;
  /** Folder of the chart. */
  readonly chart: string;
  /** YAML documents; later ones take precedence. */
  readonly values: readonly string[];
}

const releaseBlock = z.object({
  name: z.string().min(1),
  namespace: z.string().min(1).default("default"),
  chart: z.string().min(1),
  repository: z.string().optional(),
  values: z.array(z.string()).default([]),
});

/** Terraform resource type of a release. */
export const releaseType = "helm_release";

/**
 * Returns the Helm releases of a file.
 *
 * @param moduleFolder - Folder of `cdk.tf.json`: value of `path.root`.
 */
export function helmReleases(
  resources: TerraformResources,
  displayPath: string,
  moduleFolder: string,
): readonly HelmRelease[] {
  return Object.entries(resources[releaseType] ?? {}).map(([id, body]) => {
    const address = `${releaseType}.${id}`;
    const { name, namespace, chart, repository, values } = parseAs(
      releaseBlock,
      resolveText(body, resources),
      `${displayPath}: ${address}`,
    );
    const folder = repository === undefined ? evaluatePath(chart, moduleFolder) : undefined;
    if (folder === undefined) {
      throw new UserError(
        `${displayPath}: ${address}: chart must be a folder of this machine, got '${chart}'${repository === undefined ? "" : ` of ${repository}`}`,
      );
    }
    return { address, name, namespace, chart: folder, values };
  });
}

/** Error message without helm. */
export const helmMissing =
  "helm is not installed on this machine; it is required to render the chart of this environment: https://helm.sh/docs/intro/install";

const helmMs = 60_000;

/** Returns whether `helm` is on the PATH. */
export function isHelmInstalled(): boolean {
  return (
    spawnSync("helm", ["version", "--short"], { stdio: "ignore", timeout: helmMs }).status === 0
  );
}

/** Kinds without a namespace. */
export const clusterKinds: ReadonlySet<string> = new Set([
  "Namespace",
  "ClusterRole",
  "ClusterRoleBinding",
  "PriorityClass",
  "RuntimeClass",
  "StorageClass",
  "APIService",
  "CustomResourceDefinition",
]);

/** Renders the objects of a release with `helm template`, without hooks. Terraform expressions are preserved. */
export function renderRelease(
  release: HelmRelease,
  displayPath: string,
): readonly DeclaredObject[] {
  const { address, name, namespace, chart } = release;
  const expressions: string[] = [];
  // expressions are replaced by names, because a schema or template may parse the text
  const withoutExpressions = (text: string) =>
    text.replaceAll(/(?<!\$)\$\{(?:[^{}]|\{[^{}]*\})*\}/g, (it) => {
      expressions.push(it);
      return `${placeholder}${expressions.length - 1}`;
    });
  const placeholders = new RegExp(`${placeholder}(\\d+)`, "g");
  const withExpressions = (value: unknown): unknown =>
    mapStrings(value, (text) =>
      text.replaceAll(placeholders, (match, index) => expressions[Number(index)] ?? match),
    );
  const files = release.values.map(withoutExpressions);
  const text = template(
    { name, namespace: withoutExpressions(namespace), chart, values: files },
    `${displayPath}: ${address}`,
  );
  return parseAllDocuments(text)
    .map((document) => document.toJS() as Manifest | null)
    .filter((manifest) => manifest !== null)
    .map((manifest) => {
      const inNamespace = clusterKinds.has(manifest.kind)
        ? manifest
        : { ...manifest, metadata: { namespace, ...manifest.metadata } };
      return { address, manifest: withExpressions(inNamespace) as Manifest };
    });
}

const placeholder = "terraform-expression-";

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
    if (status !== 0) throw new UserError(`${where}: helm template: ${errorText(stderr)}`);
    return stdout;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function errorText(stderr: string): string {
  const lines = stderr
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !/^(?:WARNING|coalesce|Use --debug)/.test(line));
  return lines.join(" ").replace(/^Error: /, "") || "no error message";
}
