import { describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import { noHelm, type TemplateOptions, template, tryTemplate } from "./test-helm.ts";

/** Texts that YAML 1.1, which Kubernetes reads, takes for numbers, booleans or null without quotes. */
const hostile = ["2026", "3240286e-210077", "1e3", "0x1f", "no", "on", "true", "null", "12345"];

/** Fields of Kubernetes objects that hold a name or another text. */
const textFields =
  /^(name|namespace|key|image|serviceAccountName|priorityClassName|runtimeClassName|claimName|storageClassName|topologyKey|value|subPath|mountPath)$/;

/** Values that contain `text` wherever the chart takes a name. */
const valuesWith = (text: string): ChartValues => ({
  nameOverride: "clipstack",
  commonLabels: { team: text },
  imagePullSecrets: [{ name: text }],
  model: { weights: "pvc", sha256: "a".repeat(64), pvc: { claimName: text } },
  serviceAccount: { create: false, name: text },
  embed: {
    backend: "triton",
    image: { repository: text, tag: text },
    auth: { existingSecret: text, existingSecretKey: text },
    priorityClassName: text,
    podLabels: { tier: text },
    nodeSelector: { pool: text },
    extraEnv: [{ name: "A", value: text }],
    service: { annotations: { note: text } },
  },
  triton: {
    enabled: true,
    image: { repository: `registry.example/${text}`, tag: text },
    runtimeClassName: text,
    engineCache: { enabled: true, storageClass: text },
    backend: "tensorrt",
  },
  quota: { enabled: true, hard: { pods: 20 } },
  limitRange: { enabled: true, max: { cpu: 8 } },
  serviceMonitor: { enabled: true },
  prometheusRule: { enabled: true },
});

/** Paths of text fields and labels whose values are not texts, as Kubernetes decodes the output. */
function wrongFields(values: ChartValues, options: TemplateOptions): readonly string[] {
  const { code, stdout, stderr } = tryTemplate(values, options);
  expect(code, stderr).toBe(0);
  const found: string[] = [];
  const walk = (value: unknown, path: readonly (string | number)[]): void => {
    if (typeof value === "object" && value !== null) {
      for (const [key, inner] of Object.entries(value)) walk(inner, [...path, key]);
      return;
    }
    const [parent, last] = [String(path.at(-2)), String(path.at(-1))];
    const isText =
      textFields.test(last) ||
      /^(labels|matchLabels|annotations|nodeSelector|selector)$/.test(parent);
    if (isText && typeof value !== "string") found.push(`${path.join(".")}: ${String(value)}`);
  };
  // the newest version in which an unquoted `no` is a boolean
  for (const document of parseAllDocuments(stdout, { version: "1.1" })) {
    const object = document.toJS() as { kind?: string } | null;
    walk(object, [object?.kind ?? ""]);
  }
  return found;
}

describe.skipIf(noHelm !== "")(
  `the names in the chart's objects${noHelm && ` (${noHelm})`}`,
  () => {
    test.each(hostile)("are texts if they are %s", (text) => {
      expect(wrongFields(valuesWith(text), { namespace: text, release: `r-${text}` })).toEqual([]);
    });

    test.each(["no", "on", "yes"])("are texts in the release %s", (release) => {
      expect(wrongFields({ fullnameOverride: "embed" }, { release, namespace: "2026" })).toEqual(
        [],
      );
    });

    test("differ for long releases that have the same beginning", () => {
      const releases = ["a", "b"].map((end) => `team-search-embeddings-production-eu-west-1${end}`);
      const names = releases.map((release) =>
        template({}, { release }).map(({ kind, metadata }) => `${kind} ${metadata.name}`),
      );
      const [first = [], second = []] = names;
      expect(first.filter((name) => second.includes(name))).toEqual([]);
      for (const name of names.flat()) expect(name.split(" ")[1]!.length).toBeLessThan(64);
    });
  },
);
