import { expect, test } from "vitest";
import { z } from "zod";
import { selectorLabels } from "../../contract/pods.ts";
import { chartValues } from "./chart-values.ts";

/** Returns the path and code of each issue. */
function problemsOf(values: object): readonly string[] {
  const { error } = chartValues.safeParse(values);
  return (error?.issues ?? []).map(({ path, code }) => `${path.join(".")}: ${code}`);
}

test("requires no values", () => {
  expect(problemsOf({})).toEqual([]);
});

test("keeps defaults beside configured values", () => {
  const { embed } = chartValues.parse({ embed: { autoscaling: { maxReplicas: 9 } } });
  expect(embed.autoscaling).toMatchObject({ enabled: false, minReplicas: 2, maxReplicas: 9 });
  expect(embed.image.repository).toBe("clipstack/embed");
});

test.each(
  Object.entries<object>({
    ": unrecognized_keys": { embd: {} },
    "triton: unrecognized_keys": { triton: { gpu: 1 } },
    "networkPolicy.egress.0.to.0: unrecognized_keys": {
      networkPolicy: { egress: [{ to: [{ ipBlocks: {} }] }] },
    },
    "triton.affinity: unrecognized_keys": { triton: { affinity: { nodeAfinity: {} } } },
    "imagePullSecrets.0.name: invalid_type": { imagePullSecrets: [{ nam: "a" }] },
    "triton.autoscaling.prometheus: unrecognized_keys": {
      triton: { autoscaling: { prometheus: { uri: "" } } },
    },
  }),
)("rejects a typo %s", (problem, values) => {
  expect(problemsOf(values)).toContain(problem);
});

test.each(["250m", "1.5", "1536Mi", "2Gi", 4, 0.5])("accepts %s as a quantity", (quantity) => {
  expect(problemsOf({ embed: { resources: { limits: { cpu: quantity } } } })).toEqual([]);
});

test.each(["much", "-1", "1 Gi", "1gb", -2])("rejects %s as a quantity", (quantity) => {
  expect(problemsOf({ embed: { resources: { limits: { cpu: quantity } } } })).toHaveLength(1);
});

/** Specs, which the embed server validates when it starts. */
const specs = [".models[]", ".models[].towers", ".models[].embedding"];

test("every object of the schema except maps and specs rejects unknown keys", () => {
  const open: string[] = [];
  const visit = (schema: Record<string, unknown>, path: string): void => {
    const { properties, additionalProperties, items, anyOf } = schema as {
      anyOf?: Record<string, unknown>[];
      properties?: Record<string, Record<string, unknown>>;
      additionalProperties?: unknown;
      items?: Record<string, unknown>;
    };
    if (properties !== undefined && additionalProperties !== false) open.push(path);
    for (const [key, inner] of Object.entries(properties ?? {})) visit(inner, `${path}.${key}`);
    if (items !== undefined) visit(items, `${path}[]`);
    for (const inner of anyOf ?? []) visit(inner, path);
  };
  visit(z.toJSONSchema(chartValues, { io: "input" }), "");
  expect(open).toEqual(specs);
});

test("accepts the values that Helm adds to a subchart", () => {
  expect(problemsOf({ global: { anything: true } })).toEqual([]);
});

test("has values for each component of the contract", () => {
  const components = Object.keys(chartValues.parse({}));
  for (const component of ["embed", "triton"] as const) {
    expect(components).toContain(component);
    expect(Object.values(selectorLabels(component))).toContain(component);
  }
});
