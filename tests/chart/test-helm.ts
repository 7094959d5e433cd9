import { spawnSync } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseAllDocuments } from "yaml";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";

/** Test fixture: renders the chart with `helm`. */

/** `CLIPSTACK_HELM`: folder with `bin/helm`, as printed by `.ci/helm`; default: `helm` on the PATH. */
const { CLIPSTACK_HELM } = process.env;
const helmProgram = CLIPSTACK_HELM === undefined ? "helm" : join(CLIPSTACK_HELM, "bin", "helm");

/** Folder of the chart. */
export const chart = fileURLToPath(new URL("../../helm/clipstack", import.meta.url));

/** Values files of the chart by purpose; the default values have no file. */
export const valuesFiles = ["values", "values-kind", "values-cpu", "values-gpu", "values-gpu-4x"];

export interface Outcome {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export function runProgram(program: string, args: readonly string[], input = ""): Outcome {
  const { status, stdout, stderr, error } = spawnSync(program, args, {
    encoding: "utf8",
    input,
    timeout: 120_000,
    maxBuffer: 64 * 2 ** 20,
  });
  return { code: status, stdout: stdout ?? "", stderr: error?.message ?? stderr };
}

export const helm = (...args: readonly string[]): Outcome => runProgram(helmProgram, args);

/** Reason why helm is unavailable; empty if it is available. */
export const noHelm = helm("version", "--short").code === 0 ? "" : "no helm";

const { CLIPSTACK_KUBECONFORM: kubeconformProgram = "kubeconform", CLIPSTACK_KUBERNETES_SCHEMAS } =
  process.env;

/** Reason why kubeconform or its schemas are unavailable; empty if they are available. */
export const noKubeconform =
  noHelm ||
  (runProgram(kubeconformProgram, ["-v"]).code === 0 ? "" : `no ${kubeconformProgram}`) ||
  (CLIPSTACK_KUBERNETES_SCHEMAS === undefined ? "no CLIPSTACK_KUBERNETES_SCHEMAS" : "");

/** Kubernetes versions that have schemas. */
export function kubernetesVersions(): readonly string[] {
  return readdirSync(CLIPSTACK_KUBERNETES_SCHEMAS ?? "").flatMap(
    (name) => /^v(\d.*)$/.exec(name)?.[1] ?? [],
  );
}

/** Validates objects against the schemas of a Kubernetes version. */
export function kubeconform(yaml: string, version: string): Outcome {
  const schemas = [
    "{{.NormalizedKubernetesVersion}}/{{.ResourceKind}}{{.KindSuffix}}.json",
    "crds/{{.Group}}/{{.ResourceKind}}_{{.ResourceAPIVersion}}.json",
  ].flatMap((path) => ["-schema-location", join(CLIPSTACK_KUBERNETES_SCHEMAS ?? "", path)]);
  return runProgram(
    kubeconformProgram,
    ["-strict", "-summary", "-kubernetes-version", version, ...schemas],
    yaml,
  );
}

/** Part of a Kubernetes object that tests read. */
export interface TestObject {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
  };
  // biome-ignore lint/suspicious/noExplicitAny: tests read fields of many kinds
  readonly [key: string]: any;
}

export interface TemplateOptions {
  /** Name of a values file of the chart, without `.yaml`. */
  readonly file?: string;
  /** @default "clipstack" */
  readonly release?: string;
  /** @default "clipstack" */
  readonly namespace?: string;
  /** Kubernetes version; some builds of helm have no default. */
  readonly kubernetes?: string;
}

const outcomes = new Map<string, Outcome>();

/** Outcome of `helm template` with these values, which runs once for the same values and options. */
export function tryTemplate(values: object, options: TemplateOptions = {}): Outcome {
  const key = JSON.stringify([values, options]);
  const outcome = outcomes.get(key) ?? runTemplate(values, options);
  outcomes.set(key, outcome);
  return outcome;
}

function runTemplate(values: object, options: TemplateOptions): Outcome {
  const { file, release = "clipstack", namespace = "clipstack", kubernetes = "1.33.0" } = options;
  const folder = mkdtempSync(join(tmpdir(), "clipstack-chart-"));
  try {
    const own = join(folder, "values.yaml");
    writeFileSync(own, JSON.stringify(values));
    return helm(
      ...["template", release, chart, "--namespace", namespace, "--kube-version", kubernetes],
      ...(file === undefined ? [] : ["--values", join(chart, `${file}.yaml`)]),
      ...["--values", own],
    );
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

/** Rendered objects, including hooks. */
export function template(
  values: ChartValues = {},
  options: TemplateOptions = {},
): readonly TestObject[] {
  const { code, stdout, stderr } = tryTemplate(values, options);
  if (code !== 0) throw new Error(stderr);
  return parseAllDocuments(stdout)
    .map((document) => document.toJS() as TestObject | null)
    .filter((it) => it !== null);
}

/** Returns the object of a kind and name. @throws {Error} if there is none */
export function objectOf(objects: readonly TestObject[], kind: string, name: string): TestObject {
  const found = objects.find((it) => it.kind === kind && it.metadata.name === name);
  if (found === undefined) {
    const there = objects.map((it) => `${it.kind} ${it.metadata.name}`).join(", ");
    throw new Error(`no ${kind} ${name}, but ${there}`);
  }
  return found;
}

/** Message with which the chart rejects the values. */
export function rejectionOf(values: object): string {
  const { code, stderr } = tryTemplate(values);
  if (code === 0) return "nothing: it was rendered";
  const line = stderr.split("\n").find((it) => it.startsWith("Error: ")) ?? stderr;
  return line.replace(/^Error: execution error at \([^)]*\): /, "");
}
