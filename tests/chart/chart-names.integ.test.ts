import {
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { parseAllDocuments } from "yaml";
import { z } from "zod";
import { chartValues } from "../../constructs/kubernetes/chart-values.ts";
import {
  chart,
  helm,
  kubeconform,
  kubernetesVersions,
  noHelm,
  noKubeconform,
  type TemplateOptions,
  type TestObject,
  tryTemplate,
} from "./test-helm.ts";

/** Whatever Helm accepts, Kubernetes accepts: hostile names and texts, and null, in place of every value of the chart. */

/** Texts that YAML 1.1, which Kubernetes reads, takes for numbers, booleans or null, and texts that break names or YAML. */
const hostile = [
  ...["2026", "0644", "0x1f", "1e3", "3240286e-210077", "12345", ".5", "1_000", "12:30:45"],
  ...["no", "on", "y", "true", "null", "~", "No", "", " ", "a b", "-", "a-", "-a", "a..b", "../a"],
  ...[
    '"',
    "'",
    "a: b",
    "a #b",
    "{}",
    "[a",
    "*a",
    "&a",
    "!a",
    "a\nb: c",
    "\t",
    "%",
    "{{ .Values }}",
  ],
  ...["ä", "東京", "🙂", "a".repeat(53), "a".repeat(64), "b".repeat(254)],
];

interface Schema {
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly propertyNames?: Schema;
  readonly additionalProperties?: Schema | boolean;
}

/** Values of the chart by path: `embed.image` and `embed.image.tag`. */
function pathsOf({ properties = {} }: Schema, parent = ""): readonly (readonly [string, Schema])[] {
  return Object.entries(properties).flatMap(([key, schema]) => [
    [`${parent}${key}`, schema] as const,
    ...pathsOf(schema, `${parent}${key}.`),
  ]);
}
const paths = pathsOf(z.toJSONSchema(chartValues, { io: "input" }) as Schema);

type Values = Record<string, unknown>;

/** Copy of values with another one at a path; without it if that is undefined. */
function withValue(values: Values, path: string, value: unknown): Values {
  const [key = "", ...rest] = path.split(".");
  const { [key]: inner, ...others } = values;
  const changed =
    rest.length === 0 ? value : withValue((inner ?? {}) as Values, rest.join("."), value);
  return changed === undefined ? others : { ...others, [key]: changed };
}

/** Values that deploy every kind of object. */
const everything: Values = {
  model: { weights: "pvc", pvc: { claimName: "weights" }, sha256: "a".repeat(64) },
  embed: { backend: "triton" },
  triton: { enabled: true, backend: "tensorrt", engineCache: { enabled: true } },
  quota: { enabled: true, hard: { pods: 20 } },
  limitRange: { enabled: true, max: { cpu: 8 } },
  serviceMonitor: { enabled: true },
  prometheusRule: { enabled: true },
};

/** `everything`, with `text` in place of every text that may be that; a map has it as key and as value. */
function valuesWith(text: string): Values {
  const ownNames =
    /^(global|nameOverride|fullnameOverride|models|model\.towers|triton\.modelConfig\.texts|model\.sha256|embed\.resourceClaimTemplate|.*\.loadBalancerClass)$/;
  const candidates = paths.flatMap(
    ([path, { type, enum: choices, propertyNames }]): readonly (readonly [string, unknown])[] => {
      if (ownNames.test(path) || choices !== undefined) return [];
      if (/\.(affinity\.|autoscaling\.behavior)/.test(path)) return []; // Kubernetes' own objects
      if (text === "" && /(tag|claimName)$/.test(path)) return []; // required here
      if (type === "string") return [[path, text]];
      return propertyNames === undefined
        ? []
        : [
            [path, { [text]: text }],
            [path, { key: text }],
          ];
    },
  );
  return candidates.reduce<Values>(
    (values, [path, value]) => {
      const changed = withValue(values, path, value);
      return chartValues.safeParse(changed).success ? changed : values;
    },
    withValue(everything, "embed.extraEnv", [{ name: "A", value: text }]),
  );
}

const name = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
const labelKey = /^([a-z0-9.-]{1,253}\/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?$/;
const labelValue = /^([A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?)?$/;
const nameFields =
  /^(name|namespace|serviceAccountName|priorityClassName|runtimeClassName|claimName|storageClassName|resourceClaimTemplateName)$/;

/** Fields that the API server rejects although they fit its schema. */
function wrongFields(value: unknown, path: readonly string[] = []): readonly string[] {
  const [parent = "", last = ""] = path.slice(-2);
  const wrong = [`${path.join(".")}: ${JSON.stringify(value)}`];
  if (typeof value === "object" && value !== null) {
    return Object.entries(value).flatMap(([key, inner]) => wrongFields(inner, [...path, key]));
  }
  if (/^(labels|matchLabels|nodeSelector)$/.test(parent)) {
    return labelKey.test(last) && labelValue.test(String(value)) ? [] : wrong;
  }
  if (parent === "annotations")
    return labelKey.test(last) && typeof value === "string" ? [] : wrong;
  if (/^(env|metric|toleration)/.test(path.at(-3) ?? "")) return [];
  if (nameFields.test(last)) {
    return name.test(String(value)) && String(value).length <= 253 ? [] : wrong;
  }
  return [];
}

/** Objects as Kubernetes decodes them. @throws {Error} if they are not YAML, for example because a key is repeated */
function decode(yaml: string): readonly TestObject[] {
  // the newest version in which an unquoted `no` is a boolean
  return parseAllDocuments(yaml, { version: "1.1" }).flatMap((document) => {
    if (document.errors.length > 0) throw new Error(String(document.errors[0]));
    return document.toJS() === null ? [] : [document.toJS() as TestObject];
  });
}

/** Rendered objects, each checked. */
function render(values: Values, options: TemplateOptions = {}): string {
  const { code, stdout, stderr } = tryTemplate(values, options);
  expect(code, stderr).toBe(0);
  for (const object of decode(stdout)) expect(wrongFields(object, [object.kind])).toEqual([]);
  return stdout;
}

/** Asserts that every Kubernetes version decodes the objects. */
function expectValid(yaml: string): void {
  for (const version of kubernetesVersions()) {
    const { code, stdout, stderr } = kubeconform(yaml, version);
    expect(code, `${stdout}${stderr}`).toBe(0);
  }
}

describe.skipIf(noKubeconform !== "")(
  `hostile texts${noKubeconform && ` (${noKubeconform})`}`,
  () => {
    test("are rejected, or valid in Kubernetes, in place of every value", () => {
      expectValid(hostile.map((text) => render(valuesWith(text))).join("\n---\n"));
    });

    test.each(["nameOverride", "fullnameOverride"])(
      "are rejected in one line, or valid, as %s",
      (path) => {
        const rendered = hostile.flatMap((text) => {
          const values = withValue(everything, path, text);
          const { code, stderr } = tryTemplate(values);
          if (code === 0) return [render(values)];
          expect(stderr).toMatch(/must be a valid Service name|at '\/nameOverride'/);
          return [];
        });
        expect(rendered.length).toBeGreaterThan(5);
        expectValid(rendered.join("\n---\n"));
      },
    );

    test("are valid as release and namespace if Helm accepts them", () => {
      const accepted = hostile.filter(
        (text) => text.length <= 53 && /^[a-z0-9]([-a-z0-9]*[a-z0-9])?$/.test(text),
      );
      expect(accepted.length).toBeGreaterThan(8);
      const yaml = accepted.flatMap((text) => [
        render(everything, { release: `r-${text}`.slice(0, 53), namespace: text }),
        render(withValue(everything, "fullnameOverride", "embed"), {
          release: text,
          namespace: text,
        }),
      ]);
      expectValid(yaml.join("\n---\n"));
    });
  },
);

describe.skipIf(noHelm !== "")(`values of the chart${noHelm && ` (${noHelm})`}`, () => {
  test("have their defaults in every template", () => {
    const folder = join(chart, "templates");
    const files = readdirSync(folder, { recursive: true, encoding: "utf8" });
    for (const file of files.filter((it) => /\.(yaml|txt)$/.test(it))) {
      const text = readFileSync(join(folder, file), "utf8");
      expect(text.startsWith('{{- include "clipstack.defaults" . -}}\n'), file).toBe(true);
    }
  });

  const isSet = (path: string) =>
    path
      .split(".")
      .reduce<unknown>((value, key) => (value as Values | undefined)?.[key], everything) !==
    undefined;
  const unset = paths.map(([path]) => path).filter((path) => !isSet(path));
  const depthOf = (path: string) => path.split(".").length;
  const depths = [...new Set(unset.map(depthOf))];
  test.each(depths)("have their default if all others, %i names deep, are null", (depth) => {
    const nulls = unset.filter((path) => depthOf(path) === depth);
    const values = nulls.reduce((all, path) => withValue(all, path, null), everything);
    expect(render(values)).toBe(render(everything));
  });

  test.each(paths.map(([path]) => path).filter(isSet))("are absent if %s is null", (path) => {
    const rendered = tryTemplate(withValue(everything, path, null));
    expect(rendered).toEqual(tryTemplate(withValue(everything, path, undefined)));
    if (rendered.code !== 0)
      expect(rendered.stderr).toMatch(/^Error: execution error at .*: [a-z].* (is|must|requires) /);
  });
});

/** Objects of a chart that contains this one several times. */
function umbrella(aliases: readonly string[], values: Values = {}): readonly TestObject[] {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-umbrella-"));
  try {
    mkdirSync(join(folder, "charts"));
    cpSync(chart, join(folder, "charts", "clipstack"), { recursive: true });
    const dependencies = aliases.map((alias) => ({ name: "clipstack", version: "0.1.0", alias }));
    const about = { apiVersion: "v2", name: "umbrella", version: "1.0.0", dependencies };
    writeFileSync(join(folder, "Chart.yaml"), JSON.stringify(about));
    writeFileSync(join(folder, "values.yaml"), JSON.stringify(values));
    const { code, stdout, stderr } = helm("template", "rel", folder, "--kube-version", "1.33.0");
    expect(code, stderr).toBe(0);
    return decode(stdout);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

describe.skipIf(noHelm !== "")("names of objects", () => {
  const long = (end: string) => `team-search-embeddings-production-eu-west-1${end}`;
  const namesOf = (objects: readonly TestObject[]) =>
    objects.map(({ kind, metadata }) => `${kind} ${metadata.name}`);

  test("differ for long releases that have the same beginning", () => {
    const [first = [], second = []] = ["a", "b"].map((end) =>
      namesOf(decode(render({}, { release: long(end) }))),
    );
    expect(first.filter((it) => second.includes(it))).toEqual([]);
    for (const it of [...first, ...second]) expect(it.split(" ")[1]!.length).toBeLessThan(64);
    expect(first.length).toBeGreaterThan(4);
  });

  test.each([
    ["short", ["photos", "texts"]],
    ["long", [long("a"), long("b")]],
  ])("and selectors differ for two %s aliases in one chart", (_, aliases) => {
    const objects = umbrella(aliases, Object.fromEntries(aliases.map((it) => [it, everything])));
    const names = namesOf(objects);
    expect(new Set(names).size).toBe(names.length);
    const selectors = objects.flatMap(({ kind, spec }) =>
      kind === "Deployment" ? [JSON.stringify(spec.selector.matchLabels)] : [],
    );
    expect(new Set(selectors).size).toBe(4);
  });

  test("and other values have their defaults if a chart that contains this one sets null", () => {
    const nulls = {
      commonLabels: null,
      networkPolicy: null,
      embed: { budget: null, replicas: null },
    };
    expect(namesOf(umbrella(["photos"], { photos: nulls }))).toEqual(namesOf(umbrella(["photos"])));
  });
});
