import { readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { parse } from "yaml";
import { isModelConfig } from "../changes/diff-pbtxt.ts";
import { htmlReport } from "../report/comment-html.ts";
import { markdownComment } from "../report/comment-markdown.ts";
import { reviewOf } from "../review.ts";
import { exposureRules } from "../rules/exposure.ts";
import { findingsOfChange } from "../rules/findings.ts";
import { secretRules } from "../rules/secrets.ts";
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
const sshKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIEmuXNqzFsbeY+5v deployer";

/** All output formats of a review. */
function outputs(...changes: Parameters<typeof reviewOf>[0]): string {
  const review = reviewOf(changes);
  return [markdownComment(review), htmlReport(review), JSON.stringify(review)].join("\n");
}

interface SecretCases {
  /** Resources with a secret in each possible attribute. */
  readonly places: Readonly<Record<string, Omit<PlannedResource, "actions">>>;
  /** Values marked as sensitive whose parts could be printed. */
  readonly marked: Readonly<
    Record<
      string,
      Readonly<Record<"type" | "hidden", string> & Record<"before" | "after" | "marks", object>>
    >
  >;
  readonly "names of secrets": readonly string[];
  readonly "names of no secrets": readonly string[];
  readonly "texts with a secret": readonly string[];
  readonly "texts without a secret": readonly string[];
}
const cases: SecretCases = parse(readFileSync("review/input/secrets.cases.yaml", "utf8"));

function planted(place: string, secret: string): Omit<PlannedResource, "actions"> {
  return JSON.parse(JSON.stringify(cases.places[place]).replaceAll("SECRET", secret));
}

const marks = (after: unknown) => ({ before_sensitive: after, after_sensitive: after });

describe("a value marked as sensitive", () => {
  test.each(Object.entries(cases.marked))(
    "is not printed, not even in part: %s",
    (_, { hidden: text, type, before, after, marks: sensitive }) => {
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
  for (const attribute of Object.keys(cases.places)) {
    test.each([
      ["updated", ["update"]],
      ["replaced", ["delete", "create"]],
      ["created", ["create"]],
      ["destroyed", ["delete"]],
    ])(`in ${attribute} is not printed when it is %s`, (_, actions) => {
      const [before, after] = [planted(attribute, other), planted(attribute, canary)];
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
    const place = "env of a container, by name";
    const [before, after] = [planted(place, other), planted(place, canary)];
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

test.each(cases["names of secrets"])("%s is the name of a secret", (name) =>
  expect(isSecretName(name)).toBe(true),
);

test.each(cases["names of no secrets"])("%s is not the name of a secret", (name) =>
  expect(isSecretName(name)).toBe(false),
);

test.each(cases["texts with a secret"])("%s looks like a secret", (text) =>
  expect(hasSecretPattern(text)).toBe(true),
);

test.each(cases["texts without a secret"])("%s does not look like a secret", (text) =>
  expect(hasSecretPattern(text)).toBe(false),
);

test("accepts settings with names similar to secrets, but not a numeric password", () => {
  const violations = (...env: readonly string[]) =>
    findingsOfChange(
      plannedChange([{ address: "docker_container.a", actions: ["create"], after: { env } }]),
      { waivers: [], today: "2026-01-01" },
    ).filter(({ rule }) => rule === "secret-plain-text" || rule === "secret-form");
  expect(
    violations(
      `DEPLOY_KEY=${sshKey}`,
      "MAX_TOKENS=512",
      "SESSION_TIMEOUT=30",
      "TOKENIZERS_PARALLELISM=false",
      "SESSION=86400",
      "CACHE_KEY=v1",
    ),
  ).toEqual([]);
  expect(violations("PGPASSWORD=81736450").map(({ rule }) => rule)).toContain("secret-plain-text");
});

test.each<[given: string, name: string, value: unknown, found: number]>([
  ["an OpenSSH key", "ssh_key", sshKey, 0],
  ["OpenSSH keys", "ssh_keys", [sshKey, sshKey.replace("ssh-ed25519", "ssh-rsa")], 0],
  ["a public key in PEM", "signing_key", "-----BEGIN PUBLIC KEY-----\nMIIB\n", 0],
  ["a certificate", "client_key", "-----BEGIN CERTIFICATE-----\nMIIB\n", 0],
  ["a private key", "ssh_key", "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Bl\n", 1],
  [
    "a certificate with its key",
    "client_key",
    "-----BEGIN CERTIFICATE-----\nMIIB\n-----BEGIN PRIVATE KEY-----\nMIIB\n",
    1,
  ],
  ["a public key and a password", "ssh_keys", [sshKey, "hunter2"], 1],
  ["a boolean", "enable_auth", true, 0],
  ["an empty list", "keys", [], 0],
  ["an object with a password", "database", { host: "a", password: "hunter2" }, 1],
  ["a URL with a password", "database_url", "postgres://a:hunter2@db", 1],
  ["an object without one", "auth", { method: "ldap" }, 0],
  ["a reference", "database_secret", "arn:aws:secretsmanager:x:1:secret:a", 0],
  ["a password", "database_secret", "hunter2", 1],
  ["nothing", "ssh_key", undefined, 1],
  ["an empty text", "ssh_key", "", 1],
])("a variable that is given %s", (_, name, value, found) => {
  const { find } = secretRules.find(({ id }) => id === "secret-variable")!;
  const change = plannedChange([], {
    variables: { [name]: { value } },
    configuration: { root_module: { variables: { [name]: {} } } },
  });
  expect([...find(change)]).toHaveLength(found);
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
