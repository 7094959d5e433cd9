import { spawn } from "node:child_process";
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { afterEach, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { packageFolder } from "../../model-tools/files/folders.ts";
import manifest from "../package.json" with { type: "json" };
import { commentMarker } from "../report/comment-markdown.ts";

interface Step {
  readonly name?: string;
  readonly uses?: string;
  readonly run?: string;
  readonly if?: string;
  readonly env?: Readonly<Record<string, string>>;
}
interface Workflow {
  readonly on: unknown;
  readonly permissions: unknown;
  readonly jobs: Readonly<
    Record<string, { readonly permissions?: unknown; readonly steps: readonly Step[] }>
  >;
}

const read = (path: string) => readFileSync(join(packageFolder, path), "utf8");
const plan = read(".github/workflows/plan.yml");
const comment = read(".github/workflows/plan-comment.yml");
const gitlab = read("docs/ci/gitlab-review.yml");
const stepsOf = (text: string) =>
  Object.values((parse(text) as Workflow).jobs).flatMap(({ steps }) => steps);

test.each<readonly [string, string]>([
  ["plan.yml", plan],
  ["plan-comment.yml", comment],
  ...["action.yml", "docs/ci/github-plan.yml", "docs/ci/github-drift.yml"].map(
    (path) => [path, read(path)] as const,
  ),
])("%s pins actions by commit, with their version in a comment", (_, text) => {
  const used = [...text.matchAll(/uses: (\S+)(.*)$/gm)];
  expect(used.length).toBeGreaterThan(0);
  for (const [, action, version] of used) {
    if (action === `clipstack/clipstack@v${manifest.version}`) continue;
    expect(action).toMatch(/^[\w-]+\/[\w-]+@[0-9a-f]{40}$/);
    expect(version).toMatch(/^ # v\d+\.\d+\.\d+$/);
  }
});

test("plan.yml runs the code of a pull request without secrets or write permission", () => {
  const workflow = parse(plan) as Workflow;
  expect(workflow.permissions).toEqual({ contents: "read" });
  expect(workflow.on).toEqual({ pull_request: null });
  expect(plan).not.toContain("secrets.");
  expect(plan).toContain("persist-credentials: false");
});

test("plan-comment.yml may write comments, but runs no code of a pull request", () => {
  const workflow = parse(comment) as Workflow;
  expect(workflow.permissions).toEqual({});
  expect(Object.values(workflow.jobs).map(({ permissions }) => permissions)).toEqual([
    { actions: "read", "pull-requests": "write" },
  ]);
  expect(stepsOf(comment).map(({ uses }) => uses?.split("@")[0])).toEqual([
    "actions/download-artifact",
    undefined,
  ]);
  for (const { run } of stepsOf(comment)) expect(run ?? "").not.toContain("${{");
});

test.each([
  ["plan.yml", plan],
  ["gitlab-review.yml", gitlab],
])("%s runs existing scripts of package.json", (_, text) => {
  const { scripts } = JSON.parse(read("package.json"));
  const names = [...text.matchAll(/npm run (?:--silent )?([\w:]+)/g)].map((match) => match[1]);
  expect(names.length).toBeGreaterThan(1);
  for (const name of names) expect(scripts).toHaveProperty([name ?? ""]);
});

describe("the step that updates the comment", () => {
  const script = stepsOf(comment).at(-1);

  /** Requests that the step sends to GitHub, with a stub `gh` that returns fixed responses. */
  async function asked(
    review: string,
    head: string,
    comments: string,
    { changes = review, number = "7" } = {},
  ) {
    const folder = mkdtempSync(join(tmpdir(), "clipstack-comment-"));
    mkdirSync(join(folder, "review"));
    writeFileSync(join(folder, "review/changes.md"), changes);
    writeFileSync(join(folder, "review/number"), `${number}\n`);
    writeFileSync(join(folder, "review/review.md"), review);
    writeFileSync(
      join(folder, "gh"),
      `#!/bin/sh\nprintf '%s\\n' "$*" >> "${folder}/asked"\ncase "$*" in\n*" -F body="*) ;;\n*/comments*) printf '%s' '${comments}' ;;\n*) printf '%s' '${head}' ;;\nesac\n`,
    );
    chmodSync(join(folder, "gh"), 0o755);
    writeFileSync(join(folder, "asked"), "");
    const result = await ended("bash", ["-e", "-c", script?.run ?? ""], {
      cwd: folder,
      env: {
        ...process.env,
        ...script?.env,
        REPO: "a/b",
        SHA: "c0ffee",
        LC_ALL: "C.UTF-8",
        PATH: `${folder}${delimiter}${process.env.PATH}`,
      },
    });
    const writes = readFileSync(join(folder, "asked"), "utf8")
      .split("\n")
      .filter((line) => line.includes("-F body="));
    return { ...result, writes };
  }

  test("creates a comment", async () => {
    expect(await asked(`${commentMarker}\nfine\n`, "c0ffee", "")).toMatchObject({
      code: 0,
      writes: ["api --silent --method POST repos/a/b/issues/7/comments -F body=@review/review.md"],
    });
  });

  test("updates an existing comment", async () => {
    expect(await asked(`${commentMarker}\nfine\n`, "c0ffee", "41")).toMatchObject({
      code: 0,
      writes: [
        "api --silent --method PATCH repos/a/b/issues/comments/41 -F body=@review/review.md",
      ],
    });
  });

  test("creates no comment if nothing changes, but updates an existing one", async () => {
    const same = `${commentMarker}\nnothing changes\n`;
    expect(await asked(same, "c0ffee", "", { changes: "" })).toMatchObject({ code: 0, writes: [] });
    expect(await asked(same, "c0ffee", "41", { changes: "" })).toMatchObject({
      code: 0,
      writes: [
        "api --silent --method PATCH repos/a/b/issues/comments/41 -F body=@review/review.md",
      ],
    });
  });

  test("writes nothing if the pull request is closed or has a newer commit", async () => {
    for (const head of ["", "decaf"]) {
      expect(await asked(`${commentMarker}\nfine\n`, head, "41")).toMatchObject({
        code: 0,
        writes: [],
      });
    }
  });

  test("fails for an invalid number without a request", async () => {
    const review = `${commentMarker}\nfine\n`;
    for (const number of ["", "7/../../x", "0", "-1"]) {
      expect(await asked(review, "c0ffee", "41", { number })).toMatchObject({
        code: 1,
        writes: [],
      });
    }
  });

  test.each([
    ["a text without the marker", "advertisement\n"],
    ["a text that is too long", `${commentMarker}\n${"é".repeat(65_600)}`],
  ])("fails for %s and writes nothing", async (_, review) => {
    expect(await asked(review, "c0ffee", "41")).toMatchObject({ code: 1, writes: [] });
  });
});

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

  test.each([
    ["an unauthorised token", { token: "another" }, "no note: GET user: HTTP 403\n"],
    [
      "no token",
      { token: "" },
      "no note: CLIPSTACK_REVIEW_TOKEN is not set, as in merge requests of forks\n",
    ],
    [
      "a text that is no review",
      { review: "buy here" },
      "no note: review.md is not a report of 'clipstack review'\n",
    ],
  ])("is omitted with %s, and the job succeeds", async (_, given, out) => {
    expect(await noted([], given)).toEqual({ code: 0, out, written: [] });
  });
});

test("GitLab's review job has no token, and its note job runs no code of the merge request", () => {
  const jobs = parse(gitlab) as Readonly<
    Record<string, { readonly environment?: { readonly name: string }; readonly script: string[] }>
  >;
  expect(jobs.review?.environment).toBeUndefined();
  expect(JSON.stringify(jobs.review)).not.toContain("TOKEN");
  const note = jobs["review-note"];
  expect(note?.environment?.name).toBe("clipstack-review");
  expect(note?.script.join("\n")).not.toMatch(/npm |docs\/ci\/gitlab-note\.mjs review/);
  expect(note?.script[1]).toMatch(/^git show FETCH_HEAD:/);
});

describe("a commit that cannot be reviewed replaces an earlier review", () => {
  /** Comment that the script writes if there is no review. */
  async function left(script: string, env: Readonly<Record<string, string>>) {
    const folder = mkdtempSync(join(tmpdir(), "clipstack-not-reviewed-"));
    const { code } = await ended("bash", ["-ec", script], {
      cwd: folder,
      env: { PATH: process.env.PATH, LC_ALL: "C.UTF-8", ...env },
    });
    const [text, changes] = ["review.md", "changes.md"].map((file) =>
      readFileSync(join(folder, file), "utf8"),
    );
    expect(changes).toBe(text);
    return { code, lines: text?.split("\n").filter((line) => line !== "") };
  }
  const says = (link: string) => ({
    code: 0,
    lines: [
      commentMarker,
      "## ⛔ Not reviewed",
      `c0ffee12 cannot be synthesized or reviewed: [log](${link}).`,
    ],
  });

  test("on GitHub, before the upload and independent of validation", async () => {
    const steps = stepsOf(plan);
    const place = steps.findIndex(({ name }) => name === "Report a failed review");
    expect(steps[place]?.if).toMatch(/^failure\(\)/);
    const kept = steps.findIndex(({ uses }) => uses?.startsWith("actions/upload-artifact@"));
    const validated = steps.findIndex(({ name }) => name === "Validate");
    expect([place < kept, kept < validated]).toEqual([true, true]);
    const env = { SHA: "c0ffee1234567890", RUN: "https://github.example/runs/1" };
    expect(await left(steps[place]?.run ?? "", env)).toEqual(says(env.RUN));
  });

  test("on GitLab", async () => {
    const { review } = parse(gitlab) as { readonly review: { after_script: readonly string[] } };
    const env = { CI_COMMIT_SHORT_SHA: "c0ffee12", CI_JOB_URL: "https://gitlab.example/jobs/1" };
    expect(await left(review.after_script.join("\n"), env)).toEqual(says(env.CI_JOB_URL));
  });
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
