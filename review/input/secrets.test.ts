import { describe, expect, test } from "vitest";
import { isModelConfig } from "../changes/diff-pbtxt.ts";
import { htmlReport } from "../report/comment-html.ts";
import { markdownComment } from "../report/comment-markdown.ts";
import { reviewOf } from "../review.ts";
import { exposureRules } from "../rules/exposure.ts";
import { findingsOfChange } from "../rules/findings.ts";
import {
  type PlannedResource,
  plannedChange,
  plannedText,
  plantedKey,
  savedChange,
} from "../test-plans.ts";
import { synthesizedText } from "../test-stacks.ts";
import { changeOfDocuments } from "./document-change.ts";
import { changeOfPlan } from "./plan-json.ts";
import { scrubber } from "./secret-texts.ts";
import { hasSecretPattern, hidden, isSecretName, mask, variableText } from "./secrets.ts";
import { parseDocument } from "./synthesized-document.ts";

const canary = "canary-7f3a91c2e5";
const other = "another-55aa0b";

/** All output formats of a review. */
function outputs(...changes: Parameters<typeof reviewOf>[0]): string {
  const review = reviewOf(changes);
  return [markdownComment(review), htmlReport(review), JSON.stringify(review)].join("\n");
}

const url = (secret: string) => `https://bot:${secret}@registry.example/v2`;

/** Resources with a secret in each possible attribute. */
const attributes: Readonly<Record<string, (secret: string) => Omit<PlannedResource, "actions">>> = {
  "env of a container, by name": (it) => ({
    address: "docker_container.a",
    after: { env: [`DB_PASSWORD=${it}`, "PORT=1"] },
  }),
  "env of a container, with a neutral name": (it) => ({
    address: "docker_container.a",
    after: { env: [`SETTING=${it}`] },
  }),
  "env of a container, marked as sensitive": (it) => ({
    address: "docker_container.a",
    after: { env: [`LOG_LEVEL=${it}`] },
    more: { after_sensitive: { env: true }, before_sensitive: { env: true } },
  }),
  "a URL in a setting of the server": (it) => ({
    address: "docker_container.a",
    after: { env: [`MODEL_REPOSITORY=${url(it)}`] },
  }),
  "a command line": (it) => ({
    address: "docker_container.a",
    after: { command: ["serve", `--api-key=${it}`, "--password", it] },
  }),
  "a header in a health check": (it) => ({
    address: "docker_container.a",
    after: { healthcheck: [{ test: ["CMD", "curl", "-H", `Authorization: Bearer ${it}`] }] },
  }),
  "a file uploaded to a container": (it) => ({
    address: "docker_container.a",
    after: { upload: [{ file: "/etc/app.conf", content: `a = 1\nb = ${it}\nc = 3\n` }] },
  }),
  "a file of one line": (it) => ({
    address: "docker_container.a",
    after: { upload: [{ file: "/run/thing", content: it }] },
  }),
  "a label with the name of a secret": (it) => ({
    address: "docker_container.a",
    after: { labels: [{ label: "traefik.auth.token", value: it }] },
  }),
  "build arguments of an image": (it) => ({
    address: "docker_image.a",
    after: { build: [{ context: ".", build_args: { NPM_TOKEN: it } }] },
  }),
  "registry credentials": (it) => ({
    address: "docker_registry_image.a",
    after: { auth_config: [{ address: "registry.example", username: "u", password: it }] },
  }),
  "an attribute marked as sensitive": (it) => ({
    address: "docker_container.a",
    after: { hostname: it },
    more: { after_sensitive: { hostname: true }, before_sensitive: { hostname: true } },
  }),
  "a Secret": (it) => ({
    address: "kubernetes_secret_v1.a",
    after: { metadata: [{ name: "keys" }], data: { anything: it } },
  }),
  "a Secret as a manifest": (it) => ({
    address: "kubernetes_manifest.a",
    after: { manifest: { kind: "Secret", metadata: { name: "k" }, stringData: { anything: it } } },
  }),
  "env of a pod": (it) => ({
    address: "kubernetes_deployment_v1.a",
    after: {
      spec: [
        {
          template: [
            { spec: [{ container: [{ name: "a", env: [{ name: "API_TOKEN", value: it }] }] }] },
          ],
        },
      ],
    },
  }),
  "values of a release, by name": (it) => ({
    address: "helm_release.a",
    after: { values: [`auth:\n  password: ${it}\n`] },
  }),
  "values of a release, with any name": (it) => ({
    address: "helm_release.a",
    after: { values: [`embed:\n  greeting: ${it}\n  list: [${it}]\n`] },
  }),
  "values of a release, invalid YAML": (it) => ({
    address: "helm_release.a",
    after: { values: [`{ "a": ${it}: [`] },
  }),
  "set_sensitive of a release": (it) => ({
    address: "helm_release.a",
    after: { set_sensitive: [{ name: "x", value: it }] },
  }),
  "set of a release, by name": (it) => ({
    address: "helm_release.a",
    after: { set: [{ name: "db.password", value: it }] },
  }),
  "set of a release, with any name": (it) => ({
    address: "helm_release.a",
    after: { set: [{ name: "foo", value: it }], set_list: [{ name: "l", value: [it] }] },
  }),
  "description and arguments of a release": (it) => ({
    address: "helm_release.a",
    after: { description: it, postrender: [{ binary_path: "x", args: [it] }] },
  }),
  "values of a release, with a key of this project's chart at another path": (it) => ({
    address: "helm_release.a",
    after: { values: [`type: ${it}\nother: { image: { tag: ${it} } }\n`] },
  }),
  "values of a release, with spaces": (it) => ({
    address: "helm_release.a",
    after: { values: [`triton: { image: { tag: "${it} and words" } }\n`] },
  }),
  "values of a release, as the type of a Service": (it) => ({
    address: "helm_release.a",
    after: {
      values: [`triton: { service: { type: ${it} } }\nembed: { service: { type: ${it} } }\n`],
    },
  }),
  "values of a release, as a key": (it) => ({
    address: "helm_release.a",
    after: { values: [`${it}: { service: { type: NodePort } }\nusers: { ${it}: 1 }\n`] },
  }),
  "a parameter of a model, with any name": (it) => ({
    address: "docker_container.a",
    after: {
      upload: [
        {
          file: "/c.pbtxt",
          content: `platform: "p"\ninput [ { name: "i" } ]\nparameters { key: "x" value: { string_value: "${it}" } }\n`,
        },
      ],
    },
  }),
  "the login of a health check": (it) => ({
    address: "docker_container.a",
    after: { healthcheck: [{ test: ["CMD", "curl", "-u", `admin:${it}`, it, "http://x"] }] },
  }),
  "a script": (it) => ({
    address: "docker_container.a",
    after: { command: ["sh", "-c", `redis-cli -a ${it}`], entrypoint: ["sh", "-c", `x ${it}`] },
  }),
  "an option with any name": (it) => ({
    address: "kubernetes_deployment_v1.a",
    after: {
      spec: [
        {
          template: [
            { spec: [{ container: [{ name: "a", args: ["x", `--connection=${it}`, "-a", it] }] }] },
          ],
        },
      ],
    },
  }),
  "a label of basic authentication": (it) => ({
    address: "docker_container.a",
    after: { labels: [{ label: "traefik.basicauth.users", value: `admin:$apr1$${it}$h` }] },
  }),
  "an image name with credentials": (it) => ({
    address: "docker_container.a",
    after: { image: `u:${it}@registry/x:1` },
  }),
  "a ConfigMap": (it) => ({
    address: "kubernetes_config_map_v1.a",
    after: { data: { x: it, "redis.conf": `requirepass ${it}`, pgpass: `h:5432:d:u:${it}` } },
  }),
  "a ConfigMap as a manifest": (it) => ({
    address: "kubernetes_manifest.a",
    after: { manifest: { kind: "ConfigMap", data: { x: it } } },
  }),
  "the metadata of a release, which has the merged values": (it) => ({
    address: "helm_release.a",
    after: { metadata: [{ name: "a", values: `{"x":{"y":"${it}"}}` }] },
  }),
  "input of terraform_data": (it) => ({
    address: "terraform_data.a",
    after: { input: { registry_password: it, url: url(it) } },
  }),
  "a configuration of a model": (it) => ({
    address: "docker_container.a",
    after: {
      upload: [
        {
          file: "/c.pbtxt",
          content: `name: "m"\nplatform: "p"\ninput [ { name: "i" } ]\nparameters { key: "api_key" value { string_value: "${it}" } }\n`,
        },
      ],
    },
  }),
};

const long = `${canary}${"-x9Kq7Zr2".repeat(20)}`;
const marks = (after: unknown) => ({ before_sensitive: after, after_sensitive: after });

/** Values marked as sensitive whose parts could be printed, before and after the change. */
const marked: Readonly<
  Record<
    string,
    readonly [canary: string, type: string, before: object, after: object, marks: object]
  >
> = {
  "the value after a command-line option": [
    ...["x9Kq7Zr2", "docker_container"],
    { command: ["serve", "--api-key", "old"] },
    { command: ["serve", "--api-key", "x9Kq7Zr2".repeat(7)] },
    {},
  ],
  "a short command-line argument": [
    ...["CAN12", "docker_container"],
    { command: ["serve", "old"] },
    { command: ["serve", "CAN12"] },
    { command: [false, true] },
  ],
  "a secret command-line option": [
    ...["CAN12", "docker_container"],
    { command: ["serve"] },
    { command: ["serve", "--CAN12=x"] },
    { command: [false, true] },
  ],
  "a word of a command, with its spaces": [
    ...["CAN 12", "docker_container"],
    { command: ["serve", "x"] },
    { command: ["serve", "CAN  12\nlines"] },
    { command: [false, true] },
  ],
  "a secret that another argument repeats with its spaces": [
    ...["two lines", "docker_container"],
    { domainname: "a", user: "x" },
    { domainname: "CANARY  two\nlines here", user: "CANARY  two\nlines here" },
    { user: true },
  ],
  "a secret that another argument repeats after so much that it is cut": [
    ...[canary.slice(0, 6), "docker_container"],
    { domainname: "a", user: "x" },
    { domainname: `${"y".repeat(140)}${long}`, user: long },
    { user: true },
  ],
  "the host of an entry of /etc/hosts": [
    ...["CAN12", "docker_container"],
    { host: [{ host: "a", ip: "1.2.3.4" }] },
    { host: [{ host: "CAN12", ip: "1.2.3.5" }] },
    { host: [{ host: true }] },
  ],
  "a long host of an entry of /etc/hosts": [
    ...[canary.slice(0, 6), "docker_container"],
    { host: [{ host: "a", ip: "1.2.3.4" }] },
    { host: [{ host: long, ip: "1.2.3.5" }] },
    { host: [{ host: true }] },
  ],
  "the protocol of a port": [
    ...["CAN12", "docker_container"],
    { ports: [{ internal: 1, protocol: "a", external: 1 }] },
    { ports: [{ internal: 1, protocol: "CAN12", external: 2 }] },
    { ports: [{ protocol: true }] },
  ],
  "the image of a container": [
    ...["CAN12", "docker_container"],
    { image: "a" },
    { image: "CAN12" },
    { image: true },
  ],
  "the name of an image": [
    ...["CAN12", "docker_image"],
    { name: "a", image_id: "1" },
    { name: "CAN12", image_id: "2" },
    { name: true },
  ],
  "one variable of a container": [
    ...["CAN12", "docker_container"],
    { env: ["LOG_LEVEL=a", "PORT=1"] },
    { env: ["LOG_LEVEL=CAN12", "PORT=1"] },
    { env: [true, false] },
  ],
  "the value of a pod's environment variable": [
    ...["CAN12", "kubernetes_pod_v1"],
    { spec: [{ container: [{ name: "c", env: [{ name: "LOG_LEVEL", value: "a" }] }] }] },
    { spec: [{ container: [{ name: "c", env: [{ name: "LOG_LEVEL", value: "CAN12" }] }] }] },
    { spec: [{ container: [{ env: [{ value: true }] }] }] },
  ],
} as never;

describe("a value marked as sensitive", () => {
  test.each(Object.entries(marked))(
    "is not printed, not even in part: %s",
    (_, [text, type, ...rest]) => {
      const [before, after, sensitive] = rest;
      const forced = { replace_paths: Object.keys(after).map((key) => [key]) };
      for (const more of [{}, { actions: ["delete", "create"], ...forced }]) {
        const change = plannedChange([
          { address: `${type}.a`, before, after, more: { ...marks(sensitive), ...more } as never },
          // a container that runs the image
          { address: "docker_container.other", before: { image: "1" }, after: { image: "2" } },
        ]);
        const printed = outputs(change);
        expect(printed).toContain(hidden);
        expect(printed).not.toContain(text);
      }
    },
  );

  test("is reported as changed if it is a command-line argument", () => {
    const words = (text: string) => ({ command: ["serve", `--api-key=${text}`] });
    const change = (text: string) =>
      plannedChange([{ address: "docker_container.a", before: words(other), after: words(text) }]);
    expect(outputs(change(canary))).toContain("command[1]");
    expect(outputs(change(other))).not.toContain("command[1]");
  });
});

describe("a planted secret", () => {
  for (const [attribute, make] of Object.entries(attributes)) {
    test.each([
      ["updated", ["update"]],
      ["replaced", ["delete", "create"]],
      ["created", ["create"]],
      ["destroyed", ["delete"]],
    ])(`in ${attribute} is not printed when it is %s`, (_, actions) => {
      const [before, after] = [make(other), make(canary)];
      const isNew = actions.join() === "create";
      const isGone = actions.join() === "delete";
      const change = plannedChange([
        {
          ...after,
          actions,
          before: isNew ? null : before.after,
          after: isGone ? null : after.after,
          more: {
            replace_paths: Object.keys(after.after as object).map((key) => [key]),
            ...after.more,
          },
        },
      ]);
      const text = outputs(change);
      expect(text).not.toContain(canary);
      expect(text).not.toContain(other);
      const findings = findingsOfChange(change, { waivers: [], today: "2026-01-01" });
      const found = JSON.stringify(reviewOf([change], { findings }));
      expect(found).not.toContain(canary);
    });
  }

  test("is reported as changed", () => {
    const [before, after] = [
      attributes["env of a container, by name"]!(other),
      attributes["env of a container, by name"]!(canary),
    ];
    const text = outputs(plannedChange([{ ...after, before: before.after }]));
    expect(text).toContain(`- env DB_PASSWORD: ${hidden}`);
    expect(text).not.toContain("env PORT");
  });

  test("in the drift of a container is not printed", () => {
    const before = { env: [`DB_PASSWORD=${other}`] };
    const [resource] = JSON.parse(
      plannedText([
        { address: "docker_container.a", before, after: { env: [`DB_PASSWORD=${canary}`] } },
      ]),
    ).resource_changes;
    const text = outputs(plannedChange([], { resource_drift: [resource] }));
    expect(text).toContain("docker_container.a");
    expect(text).not.toContain(canary);
  });

  test("is removed from findings and other attributes", () => {
    const change = plannedChange([
      {
        address: "docker_container.a",
        before: { env: [] },
        after: { env: [`API_KEY=${canary}`], domainname: canary },
      },
    ]);
    const finding = {
      rule: "x",
      severity: "error",
      stack: "test",
      message: `got ${canary}`,
      fix: "",
    } as const;
    const review = reviewOf([change], { findings: [finding] });
    expect([markdownComment(review), JSON.stringify(review)].join()).not.toContain(canary);
  });

  test("of a variable is not printed anywhere", () => {
    const change = plannedChange(
      [{ address: "docker_container.a", before: { hostname: "a" }, after: { hostname: canary } }],
      {
        variables: { some_value: { value: canary } },
        configuration: { root_module: { variables: { some_value: { sensitive: true } } } },
      },
    );
    expect(outputs(change)).not.toContain(canary);
  });

  test("of a provider is not printed, also if a resource or finding contains it", () => {
    const expressions = {
      host: { constant_value: `tcp://u:${canary}@h:2375` },
      registry_auth: [{ password: { constant_value: other } }],
    };
    const change = plannedChange(
      [
        {
          address: "docker_container.a",
          before: { domainname: "a", user: "b" },
          after: { domainname: other, user: `is ${canary}` },
        },
      ],
      {
        configuration: {
          provider_config: { docker: { name: "docker", full_name: "a/b", expressions } },
        },
      },
    );
    const findings = findingsOfChange(change, { waivers: [], today: "2026-01-01" });
    const review = reviewOf([change], { findings });
    const text = [markdownComment(review), htmlReport(review), JSON.stringify(review)].join();
    expect(text).toContain("got 'tcp://h:2375'");
    expect(text).not.toContain(canary);
    expect(text).not.toContain(other);
  });

  test("in a short URL is not printed by a rule", () => {
    const expressions = { host: { constant_value: "tcp://u:p%40x@h:2375" } };
    const docker = { name: "docker", full_name: "a/b", expressions };
    const change = plannedChange([], { configuration: { provider_config: { docker } } });
    const found = exposureRules.flatMap(({ find }) => [...find(change)]);
    expect(JSON.stringify(found)).toContain("got 'tcp://h:2375'");
    expect(JSON.stringify(found)).not.toContain("p%40x");
  });

  test("in synthesized files is not printed", () => {
    const before = JSON.parse(synthesizedText("single-gpu"));
    const after = structuredClone(before);
    for (const body of Object.values<Record<string, unknown>>(after.resource.docker_container)) {
      body.env = [...((body.env as string[]) ?? []), `REGISTRY_TOKEN=${canary}`];
    }
    const text = outputs(
      changeOfDocuments(
        "single-gpu",
        parseDocument(JSON.stringify(before), "a"),
        parseDocument(JSON.stringify(after), "b"),
      ),
    );
    expect(text).toContain("env REGISTRY_TOKEN");
    expect(text).not.toContain(canary);
  });

  test("in a saved plan is not printed", () => {
    const change = savedChange("port-exposed");
    expect(JSON.stringify(change)).toContain(plantedKey);
    expect(outputs(change)).not.toContain(plantedKey);
  });
});

test("prints an address with the name of a secret", () => {
  const text = plannedText([
    { address: "docker_container.token", before: { restart: "no" }, after: { restart: "always" } },
  ]);
  expect(outputs(changeOfPlan({ fileName: "a", text }))).toContain("docker_container.token");
});

test.each([
  "API_KEY",
  "registryPassword",
  "auth.token",
  "DB_PASS_PHRASE",
  "client-secret",
  "AWS_SECRET_ACCESS_KEY",
  "PGPASSWORD",
  "DBPASSWORD",
  "GITHUBTOKEN",
  "NGCKEY",
  "htpasswd",
  "rootpw",
  "JWT",
  "SLACK_WEBHOOK",
])("%s is the name of a secret", (name) => expect(isSecretName(name)).toBe(true));

test.each([
  "PORT",
  "MODEL_REPOSITORY",
  "keySecret",
  "ALLOW_ANONYMOUS",
  "TLS_KEY_FILE",
  "monkey",
  "tokenizer",
  "passive",
  "primary_key",
  "MAX_TOKENS",
  "maxOutputTokens",
  "TOKENIZERS_PARALLELISM",
  "SESSION_TIMEOUT",
  "token_ttl_seconds",
  "pad_token_id",
  "bypass",
  "compass",
  "hotkey",
  "kms_key_id",
  "kms_master_key_id",
  "kms_key_arn",
  "customer_managed_key_id",
  "key_name",
  "key_pair",
  "ssh_key_pair_name",
  "ssh_key_name",
  "public_key",
  "ssh_public_key",
  "public_key_pem",
  "key_vault_id",
  "key_algorithm",
  "key_usage",
  "auth_mode",
  "authentication_type",
  "authorization_mode",
  "session_affinity",
  "session_name",
  "cookie_name",
  "password_policy",
  "token_type",
  "ssh_authorized_keys",
  "secret_arn",
  "auth_url",
  "token_endpoint",
])("%s is not the name of a secret", (name) => expect(isSecretName(name)).toBe(false));

test.each([
  url(canary),
  "-----BEGIN RSA PRIVATE KEY-----\nabc",
  "ghp_0123456789abcdefghij",
  "Authorization: Bearer abcdefgh12345678",
  "Authorization: Basic aHVudGVyOmh1bnRlcg==",
  "basic dXNlcjpwYXNzd29yZA",
  "bearer abcdefghijklmnopqrstuvwxyz",
  "mysql --password=hunter2",
  "admin:$apr1$abcdefgh$ijklmnop",
  "admin:{SHA}abcdefgh",
  "curl -u admin:hunter2 http://x",
  "redis-cli -h x -a hunter2",
  "requirepass hunter2",
  '{"auths":{"r":{"auth":"aHVudGVyMg=="}}}',
  "u:hunter2@registry/x:1",
  "user:hunter2@db.example.com:5432/x",
  "admin:hunter2@example.com",
  "ops=root:hunter2@10.0.0.1",
  "https://hooks.slack.com/services/T0/B0/abcdef",
  "https://discord.com/api/webhooks/1/abcdef",
  "AIzaSyA0123456789abcdefghijklmnopqrstuvw",
  "sk_live_0123456789abcdef",
  "SG.0123456789.abcdefghij",
  "hvs.0123456789abcdef",
  "pypi-0123456789abcdef",
  "glrt-0123456789abcdef",
  "AGE-SECRET-KEY-10123456789ABCDEF",
  "DefaultEndpointsProtocol=https;AccountKey=abcd==;",
  "Endpoint=sb://x/;SharedAccessKey=abcd==",
  "https://x.blob.core.windows.net/a?sv=1&sig=abcd1234%3D",
  "Server=x;Uid=u;Pwd=hunter2;",
  "addr=nas,username=u,pass=hunter2",
  "DB_PASSWORD=1234",
  "API_KEY=81736450",
  "--max-tokens=512 --token=hunter2",
])("%s looks like a secret", (text) => expect(hasSecretPattern(text)).toBe(true));

test.each([
  "http://127.0.0.1:8002",
  "nvcr.io/nvidia/tritonserver@sha256:0123456789abcdef",
  "--model-repository=/models",
  "registry:5000/x:1.2@sha256:0123456789abcdef",
  "node cli/clipstack.mjs wait-healthy",
  "MAX_TOKENS=512",
  "TOKENIZERS_PARALLELISM=false",
  "REQUIRE_PASSWORD=yes",
  "SESSION_TOKEN_TTL=3600",
  "REFRESH_TOKEN_DAYS=30",
  "max_tokens: 1000000",
  "bypass=cache-of-the-proxy",
  "user:ops@example.com",
  "serviceAccount:ci-bot@project.iam.gserviceaccount.com",
  "group:admins@example.com",
  "deleted:user:a@example.com?uid=123",
  '["user:ops@example.com","group:admins@example.com"]',
  "mailto:ops@example.com",
  "npm:lodash@4.17.21",
  "npm:x@1",
  "sip:ops@example.com",
  "Basic variable group for testing",
  "Bearer authentication is required",
])("%s does not look like a secret", (text) => expect(hasSecretPattern(text)).toBe(false));

test("accepts settings with names similar to secrets, but not a numeric password", () => {
  const violations = (...env: readonly string[]) =>
    findingsOfChange(
      plannedChange([{ address: "docker_container.a", actions: ["create"], after: { env } }]),
      { waivers: [], today: "2026-01-01" },
    ).filter(({ rule }) => rule === "secret-plain-text" || rule === "secret-form");
  expect(
    violations(
      "MAX_TOKENS=512",
      "SESSION_TIMEOUT=30",
      "TOKENIZERS_PARALLELISM=false",
      "SESSION=86400",
      "CACHE_KEY=v1",
    ),
  ).toEqual([]);
  expect(violations("PGPASSWORD=81736450").map(({ rule }) => rule)).toContain("secret-plain-text");
});

test.each([
  ["words with hyphens", "token-"],
  ["settings", "token=1,"],
  ["words before a setting", "a.token=1 "],
  ["signed URLs", "?sig="],
  ["words with underscores", "token_"],
  ["unterminated words", "passwa"],
  ["schemes", "http://"],
  ["users", "a://b:"],
  ["letters before a scheme", "a"],
  ["starts of a JSON Web Token", "eyJ-"],
  ["starts of a private key", "-----BEGIN "],
  ["spaces", "bearer  "],
  ["empty lines", "\n"],
])(
  "takes linear time for a long text of %s",
  (_, part) => {
    const text = `://eyJ token ${part.repeat(400_000 / part.length)}://`;
    hasSecretPattern(text);
    isModelConfig(text);
  },
  5_000,
);

test.each([
  ["a URL", `${"a".repeat(100_000)}://bot:${canary}@registry.example`],
  ["an option", `${"a-".repeat(50_000)}token=${canary}`],
])("detects %s after a long word", (_, text) => expect(hasSecretPattern(text)).toBe(true));

test.each([
  ["got hunter2-is-mine", `got ${hidden}`],
  ["got hunter2-is…", `got ${hidden}`],
  ["hunt… and hunter2-… and hun…", `${hidden} and ${hidden} and hun…`],
  ["a truncated text…", "a truncated text…"],
])("removes truncated secrets: %s", (text, clean) =>
  expect(scrubber(["hunter2-is-mine"])(text)).toBe(clean),
);

test("removes overlapping and adjacent secrets", () => {
  const scrub = scrubber(["abcdefgh", "efghijkl", "abcdef"]);
  expect(scrub("abcdefghijkl abcdefabcdefgh abcdex")).toBe(`${hidden} ${hidden}${hidden} abcdex`);
});

test("takes linear time for thousands of secrets", { timeout: 10_000 }, () => {
  const secrets = Array.from({ length: 20_000 }, (_, index) => `secret ${index} ${"x".repeat(50)}`);
  const scrub = scrubber(secrets);
  const clean = secrets.map((secret) => scrub(`TOKEN=${secret} and ${secret.slice(0, 20)}…`));
  expect(new Set(clean)).toEqual(new Set([`TOKEN=${hidden} and ${hidden}`]));
  const paths = secrets.map((_, index) => ["env", index]);
  expect(new Set(mask({ env: secrets }, paths).env as string[])).toEqual(new Set([hidden]));
});

test("masks only the values at the paths", () => {
  expect(mask({ a: [{ b: 1, c: 2 }], d: 3 }, [["a", 0, "b"]])).toEqual({
    a: [{ b: hidden, c: 2 }],
    d: 3,
  });
});

test("prints settings of the server, and of other variables only numbers and booleans", () => {
  expect(variableText("BACKEND", "onnxruntime", false)).toBe("onnxruntime");
  expect(variableText("SOMETHING", "words", false)).toBe(hidden);
  expect(variableText("SOMETHING", "8080", false)).toBe("8080");
});
