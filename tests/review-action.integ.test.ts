import { execFile } from "node:child_process";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import { createRequire } from "node:module";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import { parse } from "yaml";
import manifest from "../review/package.json" with { type: "json" };
import { plannedText } from "../review/test-plans.ts";

/** Runs the steps of action.yml in a foreign git repository, with the packed reviewer and a local server in place of GitHub. */

const root = fileURLToPath(new URL("../", import.meta.url));

interface Step {
  readonly id?: string;
  readonly run?: string;
  readonly "working-directory"?: string;
  readonly env?: Readonly<Record<string, string>>;
}

let folder: string;
let workspace: string;
let base: string;
let github: Server;
let writes: string[];
let comments: object[];
let issues: { number: number }[];
let pulls: object[];

const sha = "c0ffee".padEnd(40, "0");
const pullEvent = { pull_request: { number: 7, head: { sha } } };
/** Event of a workflow that another workflow, of a fork, started. */
const runEvent = {
  workflow_run: {
    ...{ head_sha: sha, head_branch: "fix &page=9" },
    head_repository: { owner: { login: "fork" } },
  },
};

function run(program: string, args: readonly string[], cwd: string, env: NodeJS.ProcessEnv = {}) {
  return new Promise<{ code: number; output: string }>((resolve) => {
    const options = { cwd, env: { ...process.env, ...env }, maxBuffer: 2 ** 26 };
    execFile(program, args, options, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : Number(error.code) || 1, output: stdout + stderr }),
    );
  });
}

async function succeed(...args: Parameters<typeof run>): Promise<string> {
  const { code, output } = await run(...args);
  expect(code, output).toBe(0);
  return output.trim();
}

const git = (...args: readonly string[]) =>
  succeed("git", ["-c", "user.name=a", "-c", "user.email=a@example.com", ...args], workspace);

async function commit(files: Readonly<Record<string, string>>): Promise<string> {
  for (const [path, text] of Object.entries(files)) {
    await mkdir(dirname(join(workspace, path)), { recursive: true });
    await writeFile(join(workspace, path), text);
  }
  await git("add", "--all", "--force");
  await git("commit", "--quiet", "--allow-empty", "--message", "change");
  return git("rev-parse", "HEAD");
}

/** Runs the action like a workflow of a pull request; returns its exit code and outputs. */
async function action(inputs: Readonly<Record<string, string>>, event: object = pullEvent) {
  const { steps } = parse(await readFile(join(root, "action.yml"), "utf8")).runs;
  const temp = await mkdtemp(join(folder, "runner-"));
  const output = join(temp, "output");
  await writeFile(output, "");
  await writeFile(join(temp, "event.json"), JSON.stringify(event));
  // in place of actions/checkout
  await git("worktree", "prune");
  await rm(join(workspace, ".clipstack-review-base"), { recursive: true, force: true });
  await git("worktree", "prune");
  await git("worktree", "add", "--force", "--detach", ".clipstack-review-base", base);
  const values: Record<string, string> = {
    ...{ publish: "comment,label,status", drift: "false", "fail-on": "error" },
    ...{ token: "t", package: join(folder, tarball), ...inputs },
  };
  let [code, log] = [0, ""];
  for (const step of (steps as Step[]).filter((it) => it.run !== undefined && code === 0)) {
    const env = Object.entries(step.env ?? {}).map(([name, value]) => [
      name,
      value.replaceAll(/\$\{\{ inputs\.([\w-]+) \}\}/g, (_, input) => values[input] ?? ""),
    ]);
    const result = await run(
      "bash",
      ["-e", "-c", step.run ?? ""],
      join(workspace, step["working-directory"] ?? ""),
      {
        ...Object.fromEntries(env),
        RUNNER_TEMP: temp,
        GITHUB_WORKSPACE: workspace,
        GITHUB_OUTPUT: output,
        GITHUB_EVENT_PATH: join(temp, "event.json"),
        GITHUB_REPOSITORY: "a/b",
        GITHUB_API_URL: `http://127.0.0.1:${(github.address() as AddressInfo).port}`,
      },
    );
    code = result.code;
    log += result.output;
  }
  const lines = (await readFile(output, "utf8")).trim().split("\n");
  return { code, log, temp, outputs: Object.fromEntries(lines.map((line) => line.split("="))) };
}

const tarball = `clipstack-review-${manifest.version}.tgz`;

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), "clipstack-action-"));
  workspace = join(folder, "repository");
  await mkdir(workspace);
  await succeed("npm", ["run", "build", "-w", "review"], root);
  await succeed("npm", ["pack", "./review/dist", "--pack-destination", folder], root);
  await git("init", "--quiet");
  base = await commit({
    "main.tf": "",
    ".clipstack-review.yaml": "rules: { state-shared: off }\n",
  });
  github = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on("data", (chunk: Buffer) => chunks.push(chunk));
    request.on("end", () => {
      const path = (request.url ?? "").replace("/repos/a/b/", "").replace(/\?.*/, "");
      const body = JSON.parse(Buffer.concat(chunks).toString() || "{}");
      const user = { login: "github-actions[bot]" };
      if (request.method !== "GET") {
        writes.push([request.method, path, body.state ?? body.labels ?? ""].join(" ").trim());
      }
      if (request.method === "POST" && path.endsWith("/comments")) {
        comments.push({ id: 1, user, ...body });
      }
      if (request.method === "POST" && path === "issues") issues.push({ number: 3, user, ...body });
      const lists: Record<string, unknown> = {
        "issues/7/comments": comments,
        "issues/7/labels": [{ name: "review: safe" }, { name: "bug" }],
        issues,
        pulls: (request.url ?? "").includes("&head=fork%3Afix%20%26page%3D9") ? pulls : [],
      };
      response.end(JSON.stringify(request.method === "GET" ? (lists[path] ?? []) : {}));
    });
  });
  await new Promise<void>((resolve) => github.listen(0, "127.0.0.1", resolve));
});
afterAll(async () => {
  github.close();
  await rm(folder, { recursive: true, force: true });
});
beforeEach(() => {
  [writes, comments, issues] = [[], [], []];
  pulls = [{ number: 7, head: { sha } }];
});

const database = { address: "aws_db_instance.orders", before: { engine: "postgres" } };
const dangerous = plannedText([{ ...database, actions: ["delete"], after: null }]);
const harmless = plannedText([
  { address: "null_resource.a", actions: ["create"], before: null, after: { id: null } },
]);

test("a dangerous change fails, with a comment that a harmless change updates", async () => {
  await commit({ "plan.json": dangerous });
  const blocked = await action({ plan: "orders=plan.json" });
  expect(blocked.outputs, blocked.log).toMatchObject({
    verdict: "blocked",
    errors: "1",
    delete: "1",
  });
  expect(blocked.code).toBe(1);
  expect(blocked.log).toContain("with its data");
  expect(writes).toEqual([
    "POST issues/7/comments",
    "DELETE issues/7/labels/review%3A%20safe",
    "POST issues/7/labels review: blocked",
    `POST statuses/${sha} failure`,
  ]);
  writes = [];
  await commit({ "plan.json": harmless });
  const safe = await action({ plan: "orders=plan.json" });
  expect(safe, safe.log).toMatchObject({ code: 0, outputs: { verdict: "safe", errors: "0" } });
  expect(writes).toEqual([
    "PATCH issues/comments/1",
    "POST issues/7/labels review: safe",
    `POST statuses/${sha} success`,
  ]);
});

test("reviews a plan with configurations of Triton", async () => {
  const plan = join(root, "review/input/plans/image-changed.plan.json");
  await commit({ "plan.json": await readFile(plan, "utf8") });
  const { outputs, log } = await action({ plan: "plan.json" });
  expect(outputs, log).toMatchObject({ verdict: "attention", replace: "7" });
});

test("a pull request changes neither the reviewer nor its rules", async () => {
  await commit({
    "plan.json": dangerous,
    ".clipstack-review.yaml": "rules: { data-lost: off }\nmodules: [evil.mjs]\n",
    "evil.mjs": "process.exit(0);",
    ".npmrc": "registry=http://127.0.0.1:9/\n",
    "node_modules/.bin/clipstack-review": "#!/bin/sh\nexit 0\n",
  });
  const { code, log, outputs } = await action({ plan: "plan.json" });
  expect({ code, verdict: outputs.verdict }, log).toEqual({ code: 1, verdict: "blocked" });
  expect(writes.at(-1)).toBe(`POST statuses/${sha} failure`);
});

test("after another workflow, the pull request is the open one with its branch and commit", async () => {
  await commit({ "plan.json": dangerous, number: "8" });
  expect(await action({ plan: "plan.json" }, runEvent)).toMatchObject({ code: 1 });
  expect(writes[0]).toBe("POST issues/7/comments");
  writes = [];
  pulls = [{ number: 7, head: { sha: "decaf".padEnd(40, "0") } }];
  const { code, log } = await action({ plan: "plan.json" }, runEvent);
  expect({ code, writes }, log).toEqual({ code: 1, writes: [] });
  expect(log).toContain("nothing is published: no open pull request has this commit");
});

test("a commit without a plan replaces an earlier review", async () => {
  await commit({ "plan.json": harmless });
  await action({ plan: "missing.json" }, runEvent);
  expect(writes.at(-1)).toBe(`POST statuses/${sha} failure`);
  expect(comments).toEqual([
    expect.objectContaining({ body: expect.stringContaining("Not reviewed") }),
  ]);
});

test("drift (--drift) opens one issue, which is closed without drift", async () => {
  const drift = { address: "aws_s3_bucket.logs", type: "aws_s3_bucket", name: "logs" };
  const change = { actions: ["update"], before: { acl: "private" }, after: { acl: "public" } };
  const drifted = plannedText([], {
    resource_drift: [{ ...drift, mode: "managed", provider_name: "aws", change }],
  });
  await commit({ "drift.json": drifted });
  const inputs = { plan: "drift.json", drift: "true", publish: "issue" };
  const found = await action(inputs);
  expect(found, found.log).toMatchObject({ code: 1, outputs: { drift: "1" } });
  expect(writes).toEqual(["POST issues review: drift"]);
  await commit({ "drift.json": plannedText([]) });
  expect(await action(inputs)).toMatchObject({ code: 0, outputs: { drift: "0" } });
  expect(writes.at(-1)).toBe("PATCH issues/3 closed");
});

test("the SARIF output of the action is valid", async () => {
  await commit({ "plan.json": dangerous });
  const { temp } = await action({ plan: "plan.json", publish: "none" });
  const install = ["install", "--no-audit", "--no-fund", "@microsoft/jest-sarif@1.0.0-beta.0"];
  await succeed("npm", install, temp);
  const installed = createRequire(join(temp, "index.js"));
  const schema = installed("@microsoft/jest-sarif/lib/schemas/sarif-2.1.0-rtm.5.json");
  const Ajv = installed("ajv");
  const ajv = new Ajv({ schemaId: "auto", unknownFormats: "ignore" });
  ajv.addMetaSchema(installed("ajv/lib/refs/json-schema-draft-04.json"));
  const sarif = JSON.parse(await readFile(join(temp, "review.sarif"), "utf8"));
  expect(sarif.runs[0].results[0].ruleId).toBe("data-lost");
  const isValid = ajv.validate(schema, sarif);
  expect(ajv.errors).toBe(null);
  expect(isValid).toBe(true);
  delete sarif.runs[0].results[0].message;
  expect(ajv.validate(schema, sarif)).toBe(false);
});

test("only the reviewed plan passes the check before the apply", async () => {
  const reviewer = join(root, "review/dist/lib/bin/clipstack-review.mjs");
  const review = (...args: readonly string[]) => run("node", [reviewer, ...args], folder);
  for (const name of ["key", "other"]) {
    await succeed("openssl", ["genpkey", "-algorithm", "ed25519", "-out", `${name}.pem`], folder);
    await succeed(
      "openssl",
      ["pkey", "-in", `${name}.pem`, "-pubout", "-out", `${name}.pub`],
      folder,
    );
  }
  const write = (name: string, text: string) => writeFile(join(folder, name), text);
  await write("p.json", harmless);
  await write("dangerous.json", dangerous);
  const { code, output } = await review("attest", "p.json", "--key", "key.pem");
  expect(code, output).toBe(0);
  const piped = `node ${reviewer} attest p=- --key key.pem < p.json`;
  expect(await run("bash", ["-c", piped], folder)).toEqual({ code: 0, output });
  await write("attestation.json", output);
  const check = (plan: string, key = "key.pub") =>
    review("check", plan, "--key", key, "--attestation", "attestation.json");
  expect(await check("p.json")).toEqual({ code: 0, output: "matches the attested review\n" });
  expect((await check("p=dangerous.json")).output).toContain("p: differs from the reviewed change");
  expect((await check("p.json", "other.pub")).output).toContain("signature");
  expect((await review("attest", "dangerous.json", "--key", "key.pem")).code).toBe(1);
  await write("empty.json", plannedText([]));
  expect((await review("converged", "empty.json")).code).toBe(0);
  expect(await review("converged", "p.json")).toMatchObject({
    code: 1,
    output: expect.stringContaining("p: create null_resource.a"),
  });
});
