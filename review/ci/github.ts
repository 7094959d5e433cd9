import { appendFileSync, readFileSync } from "node:fs";
import { z } from "zod";
import { parseAs, parseJson } from "../../contract/parse.ts";
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

/** Result of a review to publish. */
interface Published {
  /** Absent if the change cannot be reviewed. */
  readonly review?: Review;
  readonly comment: string;
  readonly isAccepted: boolean;
}

/**
 * Publishes a review with the variables of a GitHub workflow, and writes the outputs of the step. Without an open pull request that
 * has the reviewed commit, nothing is published on one.
 */
export async function publishOnGithub(
  { review, comment, isAccepted }: Published,
  places: readonly Publication[],
  env: Environment = process.env,
): Promise<void> {
  const outputs = review === undefined ? [] : outputsOf(review);
  if (env.GITHUB_OUTPUT) {
    appendFileSync(
      env.GITHUB_OUTPUT,
      outputs.map(([name, value]) => `${name}=${value}\n`).join(""),
    );
  }
  if (env.GITHUB_STEP_SUMMARY) appendFileSync(env.GITHUB_STEP_SUMMARY, comment);
  const call = api(env);
  if (places.includes("issue") && review !== undefined)
    await updateIssue(call, review, comment, env);
  if (!places.some((place) => place !== "issue")) return;
  const pull = await pullRequestOf(call, env);
  if (pull === undefined) {
    console.error("nothing is published: no open pull request has this commit");
    return;
  }
  const label = review === undefined ? labels.blocked : labels[review.verdict.level];

  if (places.includes("comment")) {
    const path = `issues/${pull.number}/comments`;
    const own = await find(call, path, isOwn(env));
    if (own !== undefined) await call("PATCH", `issues/comments/${own.id}`, { body: comment });
    else if (label !== labels.safe || !review?.stacks.every(isUnchanged)) {
      await call("POST", path, { body: comment });
    }
  }
  if (places.includes("label")) {
    const path = `issues/${pull.number}/labels`;
    const present = (await call("GET", `${path}?per_page=100`)) as { readonly name: string }[];
    for (const { name } of present) {
      const isOld = name !== label && Object.values<string>(labels).includes(name);
      if (isOld) await call("DELETE", `${path}/${encodeURIComponent(name)}`);
    }
    await call("POST", path, { labels: [label] });
  }
  if (places.includes("status")) {
    await call("POST", `statuses/${pull.head.sha}`, {
      state: isAccepted ? "success" : "failure",
      context: "clipstack-review",
      description: review === undefined ? "not reviewed" : label,
      target_url: runUrl(env),
    });
  }
}

/** Comment on a commit that cannot be reviewed; it replaces the review of an earlier commit. */
export function notReviewedComment(env: Environment = process.env): string {
  return `${commentMarker}\n\n## ⛔ Not reviewed\n\nThe latest commit cannot be synthesized, planned or reviewed: [log](${runUrl(env)}).\n`;
}

function runUrl(env: Environment): string {
  return `${env.GITHUB_SERVER_URL}/${env.GITHUB_REPOSITORY}/actions/runs/${env.GITHUB_RUN_ID}`;
}

async function updateIssue(
  call: Call,
  review: Review,
  comment: string,
  env: Environment,
): Promise<void> {
  const open = `issues?state=open&labels=${encodeURIComponent(driftLabel)}`;
  const own = await find(call, open, isOwn(env));
  const hasDrift = review.stacks.some(({ drift }) => drift.length > 0);
  const update = hasDrift ? { body: comment } : { state: "closed" };
  if (own !== undefined) await call("PATCH", `issues/${own.number}`, update);
  else if (hasDrift) {
    await call("POST", "issues", { title: driftTitle, body: comment, labels: [driftLabel] });
  }
}

/** Returns whether this program wrote a comment or an issue: other users can write the marker too. */
function isOwn(env: Environment): (it: Remark) => boolean {
  const author = env.CLIPSTACK_COMMENT_AUTHOR || "github-actions[bot]";
  return ({ body, user }) => user.login === author && body?.startsWith(commentMarker) === true;
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

const head = z.object({ sha: z.string().regex(/^[0-9a-f]{40,64}$/) });
const pullRequest = z.object({ number: z.int().positive(), head });
type PullRequest = z.infer<typeof pullRequest>;

const eventSchema = z.union([
  z.object({ pull_request: pullRequest }),
  z.object({
    workflow_run: z.object({
      head_sha: head.shape.sha,
      head_branch: z.string(),
      head_repository: z.object({ owner: z.object({ login: z.string() }) }),
    }),
  }),
]);

/**
 * Pull request of the event that started the workflow, and its commit. For a fork, the event of a finished workflow has only the branch
 * and the commit, and the artifacts of that workflow are untrusted. The pull request is therefore looked up on GitHub by its branch.
 */
async function pullRequestOf(call: Call, env: Environment): Promise<PullRequest | undefined> {
  const file = required(env, "GITHUB_EVENT_PATH");
  const event = eventSchema.safeParse(parseJson(readFileSync(file, "utf8"), file)).data;
  if (event === undefined) {
    throw new UserError("--github requires an event pull_request or workflow_run");
  }
  if ("pull_request" in event) return event.pull_request;
  const { head_sha, head_branch, head_repository } = event.workflow_run;
  const branch = encodeURIComponent(`${head_repository.owner.login}:${head_branch}`);
  const pulls = await call("GET", `pulls?state=open&per_page=100&head=${branch}`);
  return parseAs(z.array(pullRequest), pulls, "GitHub: pulls").find(
    (pull) => pull.head.sha === head_sha,
  );
}
