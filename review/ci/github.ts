import { appendFileSync } from "node:fs";
import { UserError } from "../../contract/user-error.ts";
import { countNames, type Review } from "../changes/stack-review.ts";
import { isUnchanged } from "../report/comment-document.ts";
import { commentMarker } from "../report/comment-markdown.ts";

/** Where a review appears on GitHub: pull request comment and label, commit status, issue about drift. */
export const publications = ["comment", "label", "status", "issue"] as const;
export type Publication = (typeof publications)[number];

type Environment = Readonly<Record<string, string | undefined>>;

const labels = {
  safe: "review: safe",
  attention: "review: needs attention",
  blocked: "review: blocked",
} as const;
const driftLabel = "review: drift";
const driftTitle = "Resources changed outside of Terraform";

interface Remark {
  readonly id: number;
  readonly number: number;
  readonly body?: string | null;
  readonly user: { readonly login: string };
}

/** Publishes a review with the variables of a GitHub workflow, and writes the outputs of the step. */
export async function publishOnGithub(
  review: Review,
  comment: string,
  places: readonly Publication[],
  code: number,
  env: Environment = process.env,
): Promise<void> {
  const outputs = outputsOf(review).map(([name, value]) => `${name}=${value}\n`);
  if (env.GITHUB_OUTPUT) appendFileSync(env.GITHUB_OUTPUT, outputs.join(""));
  if (env.GITHUB_STEP_SUMMARY) appendFileSync(env.GITHUB_STEP_SUMMARY, comment);
  const call = api(env);
  const author = env.CLIPSTACK_COMMENT_AUTHOR || "github-actions[bot]";
  const isOwn = ({ body, user }: Remark) =>
    user.login === author && body?.startsWith(commentMarker) === true;
  const { level } = review.verdict;

  if (places.includes("comment")) {
    const path = `issues/${pullRequest(env)}/comments`;
    const own = await find(call, path, isOwn);
    if (own !== undefined) await call("PATCH", `issues/comments/${own.id}`, { body: comment });
    else if (level !== "safe" || !review.stacks.every(isUnchanged)) {
      await call("POST", path, { body: comment });
    }
  }
  if (places.includes("label")) {
    const path = `issues/${pullRequest(env)}/labels`;
    const present = (await call("GET", `${path}?per_page=100`)) as { readonly name: string }[];
    for (const { name } of present) {
      const isOld = name !== labels[level] && Object.values<string>(labels).includes(name);
      if (isOld) await call("DELETE", `${path}/${encodeURIComponent(name)}`);
    }
    await call("POST", path, { labels: [labels[level]] });
  }
  if (places.includes("status")) {
    await call("POST", `statuses/${required(env, "CLIPSTACK_SHA")}`, {
      state: code === 0 ? "success" : "failure",
      context: "clipstack-review",
      description: labels[level],
      target_url: `${env.GITHUB_SERVER_URL}/${env.GITHUB_REPOSITORY}/actions/runs/${env.GITHUB_RUN_ID}`,
    });
  }
  if (places.includes("issue")) {
    const open = `issues?state=open&labels=${encodeURIComponent(driftLabel)}`;
    const own = await find(call, open, isOwn);
    const hasDrift = review.stacks.some(({ drift }) => drift.length > 0);
    const update = hasDrift ? { body: comment } : { state: "closed" };
    if (own !== undefined) await call("PATCH", `issues/${own.number}`, update);
    else if (hasDrift) {
      await call("POST", "issues", { title: driftTitle, body: comment, labels: [driftLabel] });
    }
  }
}

function outputsOf({ verdict, stacks }: Review): readonly (readonly [string, string | number])[] {
  const open = stacks
    .flatMap(({ findings }) => findings)
    .filter(({ waived, existing }) => waived === undefined && !existing);
  const sum = (name: (typeof countNames)[number]) =>
    stacks.reduce((total, { counts }) => total + counts[name], 0);
  return [
    ["verdict", verdict.level],
    ["errors", open.filter(({ severity }) => severity === "error").length],
    ["warnings", open.filter(({ severity }) => severity === "warning").length],
    ...countNames.map((name) => [name, sum(name)] as const),
  ];
}

type Call = (method: string, path: string, body?: object) => Promise<unknown>;

function api(env: Environment): Call {
  return async (method, path, body) => {
    const base = `${required(env, "GITHUB_API_URL")}/repos/${required(env, "GITHUB_REPOSITORY")}`;
    const response = await fetch(`${base}/${path}`, {
      method,
      headers: {
        authorization: `Bearer ${required(env, "GITHUB_TOKEN")}`,
        accept: "application/vnd.github+json",
        "content-type": "application/json",
      },
      signal: AbortSignal.timeout(30_000),
      ...(body !== undefined && { body: JSON.stringify(body) }),
    }).catch((error: Error) => {
      throw new UserError(`GitHub: ${method} ${path}: ${error.message}`);
    });
    if (!response.ok) throw new UserError(`GitHub: ${method} ${path}: HTTP ${response.status}`);
    return response.status === 204 ? undefined : response.json();
  };
}

async function find(
  call: Call,
  path: string,
  matches: (it: Remark) => boolean,
  page = 1,
): Promise<Remark | undefined> {
  const url = `${path}${path.includes("?") ? "&" : "?"}per_page=100&page=${page}`;
  const list = (await call("GET", url)) as readonly Remark[];
  const found = list.find(matches);
  return found ?? (list.length < 100 ? undefined : find(call, path, matches, page + 1));
}

function required(env: Environment, name: string): string {
  const value = env[name];
  if (!value) throw new UserError(`--github requires the variable ${name}`);
  return value;
}

function pullRequest(env: Environment): string {
  const number = required(env, "CLIPSTACK_PULL_REQUEST");
  if (!/^[1-9]\d{0,9}$/.test(number)) {
    throw new UserError(
      `CLIPSTACK_PULL_REQUEST must be the number of a pull request, got '${number}'`,
    );
  }
  return number;
}
