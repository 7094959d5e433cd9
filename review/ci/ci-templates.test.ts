import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { packageFolder } from "../../model-tools/files/folders.ts";
import manifest from "../package.json" with { type: "json" };
import { commentMarker } from "../report/comment-markdown.ts";

interface Step {
  readonly uses?: string;
  readonly run?: string;
  readonly with?: Readonly<Record<string, unknown>>;
}
interface Workflow {
  readonly on: unknown;
  readonly permissions: unknown;
  readonly jobs: Readonly<
    Record<string, { readonly permissions?: unknown; readonly steps: readonly Step[] }>
  >;
}

const read = (path: string) => readFileSync(join(packageFolder, path), "utf8");
const gitlab = read("docs/ci/gitlab-review.yml");
const stepsOf = (text: string) =>
  Object.values((parse(text) as Workflow).jobs).flatMap(({ steps }) => steps);

const template = "create-clipstack/template/.github/workflows";
const synthesizing = [
  ".github/workflows/plan.yml",
  "docs/ci/github-plan.yml",
  `${template}/synthesize.yml`,
];
const reviewing = [
  ".github/workflows/plan-review.yml",
  "docs/ci/github-plan-review.yml",
  `${template}/review.yml`,
];

const ownWorkflows = readdirSync(join(packageFolder, ".github/workflows"));

test.each([
  ...new Set([
    ...ownWorkflows.map((file) => `.github/workflows/${file}`),
    ...[...synthesizing, ...reviewing, "action.yml", "docs/ci/github-drift.yml"],
  ]),
])("%s pins actions by commit, with their version in a comment", (path) => {
  const used = [...read(path).matchAll(/\buses: (\S+)(.*)$/gm)];
  expect(used.length).toBeGreaterThan(0);
  for (const [, action, version] of used) {
    if (action === `clipstack/clipstack@v${manifest.version}`) continue;
    expect(action).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40}$/);
    expect(version).toMatch(/^ # v\d+\.\d+\.\d+$/);
  }
});

test.each(synthesizing)(
  "%s runs the code of a pull request without secrets or write permission",
  (path) => {
    const workflow = parse(read(path)) as Workflow;
    expect(workflow.permissions).toEqual({ contents: "read" });
    expect(workflow.on).toEqual({ pull_request: null });
    expect(Object.values(workflow.jobs).some(({ permissions }) => permissions)).toBe(false);
    expect(read(path)).not.toMatch(/secrets\.|github\.token/);
    expect(read(path)).toContain("persist-credentials: false");
  },
);

test.each(reviewing)(
  "%s publishes with minimal permissions, but runs no code of a pull request",
  (path) => {
    const workflow = parse(read(path)) as Workflow;
    expect(workflow.permissions).toEqual({});
    expect(Object.values(workflow.jobs).map(({ permissions }) => permissions)).toEqual([
      { actions: "read", contents: "read", "pull-requests": "write", statuses: "write" },
    ]);
    const steps = stepsOf(read(path));
    const download = steps.find(({ uses }) => uses?.startsWith("actions/download-artifact@"));
    // otherwise the artifact could replace files of the reviewer
    expect(download?.with?.path).toMatch(/^(plan|head|\$\{\{ runner\.temp \}\}\/head)$/);
    const checkouts = steps.filter(({ uses }) => uses?.startsWith("actions/checkout@"));
    for (const { with: given } of checkouts) {
      expect(String(given?.ref)).toMatch(/^(undefined|\$\{\{ steps\.base\.outputs\.sha \}\})$/);
      expect(given?.["persist-credentials"]).toBe(false);
    }
    for (const { run } of steps) expect(run ?? "").not.toMatch(/\$\{\{|git checkout|secrets\./);
  },
);

test.each([synthesizing[0] ?? "", reviewing[0] ?? "", "docs/ci/gitlab-review.yml"])(
  "%s runs existing scripts of package.json",
  (path) => {
    const { scripts } = JSON.parse(read("package.json"));
    const names = [...read(path).matchAll(/npm run (?:--silent )?([\w:]+)/g)].map(
      ([, name]) => name,
    );
    expect(names.length).toBeGreaterThan(0);
    for (const name of names) expect(scripts).toHaveProperty([name ?? ""]);
  },
);

describe("the note of GitLab", () => {
  let server: Server | undefined;
  afterEach(() => server?.close());

  const me = 5;
  const talk = (id: number) => ({ id, body: "a question", author: 6 });

  /** Runs the script against the notes of a merge request, 2 per page; returns the write requests. */
  async function noted(
    notes: readonly { id: number; body: string; author: number }[],
    { token = "token-of-test", review = `${commentMarker}\nfine`, changes = "fine" } = {},
  ) {
    const written: string[] = [];
    server = createServer((request, response) => {
      const url = new URL(request.url ?? "", "http://localhost");
      const page = Number(url.searchParams.get("page"));
      let body = "";
      request.on("data", (part) => {
        body += part;
      });
      request.on("end", () => {
        if (request.method !== "GET") {
          written.push(`${request.method} ${url.pathname} ${JSON.parse(body).body}`);
        }
        if (page * 2 < notes.length) response.setHeader("x-next-page", String(page + 1));
        response.statusCode = request.headers["private-token"] === "token-of-test" ? 200 : 403;
        const found = notes
          .slice(page * 2 - 2, page * 2)
          .map(({ author, ...note }) => ({ ...note, author: { id: author } }));
        response.end(JSON.stringify(url.pathname === "/user" ? { id: me } : found));
      });
    });
    await new Promise<void>((resolve) => server?.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const folder = mkdtempSync(join(tmpdir(), "clipstack-note-"));
    writeFileSync(join(folder, "review.md"), review);
    writeFileSync(join(folder, "changes.md"), changes);
    const result = await ended(process.execPath, [join(packageFolder, "docs/ci/gitlab-note.mjs")], {
      cwd: folder,
      env: {
        CI_API_V4_URL: `http://127.0.0.1:${port}`,
        CI_PROJECT_ID: "1",
        CI_MERGE_REQUEST_IID: "2",
        CLIPSTACK_REVIEW_TOKEN: token,
      },
    });
    return { ...result, written };
  }
  const path = "/projects/1/merge_requests/2/notes";

  test("is created", async () => {
    expect(await noted([talk(1)])).toEqual({
      code: 0,
      out: "wrote the note\n",
      written: [`POST ${path} ${commentMarker}\nfine`],
    });
  });

  test("is updated, also on a later page", async () => {
    const old = { id: 9, body: `${commentMarker}\nold`, author: me };
    expect(await noted([1, 2, 3].map(talk).concat(old))).toMatchObject({
      code: 0,
      written: [`PUT ${path}/9 ${commentMarker}\nfine`],
    });
  });

  test("does not replace a note by another author with the same marker", async () => {
    const theirs = { id: 9, body: `${commentMarker}\nmine`, author: 6 };
    expect(await noted([theirs])).toMatchObject({ out: "wrote the note\n" });
  });

  test("is not created if nothing changes, but an existing one is updated", async () => {
    expect(await noted([], { changes: "" })).toEqual({
      code: 0,
      out: "nothing changes: no note\n",
      written: [],
    });
    const old = { id: 9, body: `${commentMarker}\nold`, author: me };
    expect(await noted([old], { changes: "" })).toMatchObject({ out: "updated the note\n" });
  });

  test.each(
    Object.entries({
      "no note: GET user: HTTP 403\n": { token: "another" },
      "no note: CLIPSTACK_REVIEW_TOKEN is not set, as in merge requests of forks\n": { token: "" },
      "no note: review.md is not a report of 'clipstack review'\n": { review: "buy here" },
    }),
  )("is omitted: %s, and the job succeeds", async (out, given) => {
    expect(await noted([], given)).toEqual({ code: 0, out, written: [] });
  });
});

test("GitLab's jobs with a token or the reviewer run no code of the merge request", () => {
  const jobs = parse(gitlab) as Readonly<
    Record<string, { readonly environment?: { readonly name: string }; readonly script: string[] }>
  >;
  const { synthesize, review, "review-note": note } = jobs;
  for (const job of [synthesize, review]) {
    expect(job?.environment).toBeUndefined();
    expect(JSON.stringify(job)).not.toContain("TOKEN");
  }
  const [fetched, worktree, installed] = review?.script ?? [];
  expect(fetched).toContain('"$CI_MERGE_REQUEST_TARGET_BRANCH_NAME"');
  expect(worktree).toBe("git worktree add --detach /tmp/reviewer FETCH_HEAD");
  expect(installed).toMatch(/^cd \/tmp\/reviewer && npm ci/);
  expect(note?.environment?.name).toBe("clipstack-review");
  expect(note?.script.join("\n")).not.toMatch(/npm |docs\/ci\/gitlab-note\.mjs review/);
  expect(note?.script[1]).toMatch(/^git show FETCH_HEAD:/);
});

test("a commit that GitLab cannot review replaces an earlier review", async () => {
  const { review } = parse(gitlab) as { readonly review: { after_script: readonly string[] } };
  const folder = mkdtempSync(join(tmpdir(), "clipstack-not-reviewed-"));
  const { code } = await ended("bash", ["-ec", review.after_script.join("\n")], {
    cwd: folder,
    env: {
      ...{ PATH: process.env.PATH, LC_ALL: "C.UTF-8" },
      ...{ CI_COMMIT_SHORT_SHA: "c0ffee12", CI_JOB_URL: "https://gitlab.example/jobs/1" },
    },
  });
  const [text, changes] = ["review.md", "changes.md"].map((file) =>
    readFileSync(join(folder, file), "utf8"),
  );
  expect(code).toBe(0);
  expect(changes).toBe(text);
  expect(text?.split("\n").filter((line) => line !== "")).toEqual([
    commentMarker,
    "## ⛔ Not reviewed",
    "c0ffee12 cannot be synthesized or reviewed: [log](https://gitlab.example/jobs/1).",
  ]);
});

function ended(
  program: string,
  args: readonly string[],
  options: { readonly cwd: string; readonly env: NodeJS.ProcessEnv },
): Promise<{ readonly code: number | null; readonly out: string }> {
  return new Promise((resolve) => {
    const child = spawn(program, [...args], { ...options, timeout: 60_000 });
    let out = "";
    child.stdout.on("data", (part) => {
      out += part;
    });
    child.on("close", (code) => resolve({ code, out }));
  });
}
