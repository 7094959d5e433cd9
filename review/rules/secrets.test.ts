import { describe, expect, test } from "vitest";
import { type PlannedResource, plannedChange } from "../test-plans.ts";
import { secretRules } from "./secrets.ts";

const url = "postgres://app:hunter2@db/app";
const configuration = (resource: object, more: object = {}) => ({
  configuration: { root_module: { resources: [resource] }, ...more },
});

/** Findings in a plan, as `<rule>: <message>`. */
function found(
  resources: readonly Omit<PlannedResource, "actions">[],
  more: Readonly<Record<string, unknown>> = {},
): readonly string[] {
  const created = resources.map((it) => ({ actions: ["create"], ...it }));
  const change = plannedChange(created, more);
  return secretRules.flatMap((rule) =>
    rule.find(change).map(({ message }) => `${rule.id}: ${message}`),
  );
}

const pod = (spec: object) => ({ spec: [{ template: [{ spec: [spec] }] }] });
const env = [{ name: "DB_PASSWORD", value: "hunter2" }];
const inPod = [
  "secret-plain-text: DB_PASSWORD must come from a Secret (value_from), got a literal value",
];

describe("a literal value with the name of a secret is found in", () => {
  test.each<[place: string, address: string, after: object, messages: readonly string[]]>([
    ["a Deployment", "kubernetes_deployment.a", pod({ container: [{ env }] }), inPod],
    ["a StatefulSet", "kubernetes_stateful_set_v1.a", pod({ container: [{ env }] }), inPod],
    ["an init container", "kubernetes_daemonset.a", pod({ init_container: [{ env }] }), inPod],
    ["kubernetes_env", "kubernetes_env.a", { env }, inPod],
    [
      "a manifest",
      "kubernetes_manifest.a",
      { manifest: { kind: "Job", spec: { template: { spec: { containers: [{ env }] } } } } },
      inPod,
    ],
    [
      "a ConfigMap",
      "kubernetes_config_map_v1.a",
      { data: { token: "hunter2" } },
      ["secret-plain-text: data.token must come from a Secret, got a literal value"],
    ],
    [
      "a service of Docker Swarm",
      "docker_service.a",
      { task_spec: [{ container_spec: [{ env: { API_KEY: "hunter2" } }] }] },
      ["secret-plain-text: API_KEY must come from a sensitive variable, got a literal value"],
    ],
    [
      "variables of a function",
      "aws_lambda_function.a",
      { environment: [{ variables: { STRIPE_KEY: "hunter2" } }] },
      ["secret-plain-text: STRIPE_KEY must come from a sensitive variable, got a literal value"],
    ],
    [
      "an attribute",
      "terraform_data.a",
      { input: { password: "hunter2" } },
      [
        "secret-plain-text: input.password must come from a sensitive variable, got a literal value",
      ],
    ],
  ])("%s", (_, address, after, messages) => expect(found([{ address, after }])).toEqual(messages));
});

test("values with names that other things have too, and references, are no secrets", () => {
  expect(
    found([
      { address: "aws_dynamodb_table.a", after: { hash_key: "OrderId", kms_key: "an-alias" } },
      { address: "aws_cognito_user_pool_client.a", after: { access_token: "hours" } },
      {
        address: "aws_lambda_function.a",
        after: {
          environment: [{ variables: { DB_SECRET: "arn:aws:secretsmanager:x:1:secret:a" } }],
        },
      },
      {
        address: "kubernetes_pod.a",
        after: { spec: [{ container: [{ args: ["--token", "$(TOKEN)"] }] }] },
      },
    ]),
  ).toEqual([]);
});

test("a value that Terraform marks as sensitive passes, unless the configuration has it literally", () => {
  const input = { url, password: "hunter2" };
  const marked = {
    address: "terraform_data.a",
    after: { input },
    more: { after_sensitive: { input: { url: true, password: true } } },
  };
  expect(found([marked])).toEqual([]);
  const address = "terraform_data.a";
  const variable = { address, expressions: { input: { references: ["var.url"] } } };
  expect(found([marked], configuration(variable))).toEqual([]);
  const literal = { address, expressions: { input: { constant_value: input } } };
  expect(found([marked], configuration(literal))).toEqual([
    "secret-plain-text: input.password must come from a sensitive variable, got a literal value",
    "secret-form: input.url must not contain what looks like a secret (value hidden)",
  ]);
});

test("arguments of modules are examined", () => {
  const argument = (value: object) => ({ expressions: { password: value } });
  const inner = { module_calls: { user: argument({ constant_value: "hunter2" }) } };
  const module_calls = { a: argument({ references: ["var.a"] }), b: { module: inner } };
  expect(found([], { configuration: { root_module: { module_calls } } })).toEqual([
    "secret-plain-text: module.b.user.password must come from a sensitive variable, got a literal value",
  ]);
});

test("settings of providers and outputs are examined", () => {
  const change = (value: unknown, after_sensitive: boolean) => ({
    actions: ["create"],
    after: value,
    after_sensitive,
  });
  const provider_config = {
    kubernetes: { expressions: { token: { constant_value: "hunter2" } } },
    other: { expressions: { token: { references: ["var.token"] } } },
  };
  expect(
    found([], {
      output_changes: {
        api_token: change("hunter2", false),
        database: change(url, false),
        password: change("hunter2", true),
        secret_arn: change("arn:aws:secretsmanager:x:1:secret:a", false),
      },
      ...configuration({ address: "a.b" }, { provider_config }),
    }),
  ).toEqual([
    "secret-plain-text: provider.kubernetes.0.token must come from a sensitive variable, got a literal value",
    "secret-plain-text: output.api_token must be sensitive, got a literal value",
    "secret-form: output.database must not contain what looks like a secret (value hidden)",
  ]);
});
