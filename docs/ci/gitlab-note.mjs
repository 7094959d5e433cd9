// `node gitlab-note.mjs review.md changes.md`: writes the review as a note of the merge request or updates the existing note. If
// changes.md is empty, nothing changes and no new note is written. Always exits with 0, because the review decides the pipeline's
// result.
import { existsSync, readFileSync } from "node:fs";

const marker = "<!-- clipstack-review -->";
const [file = "review.md", changes = "changes.md"] = process.argv.slice(2);
const { CI_API_V4_URL, CI_PROJECT_ID, CI_MERGE_REQUEST_IID, CLIPSTACK_REVIEW_TOKEN } = process.env;

async function call(path, options = {}) {
  const response = await fetch(`${CI_API_V4_URL}/${path}`, {
    ...options,
    headers: { "content-type": "application/json", "private-token": CLIPSTACK_REVIEW_TOKEN },
    signal: AbortSignal.timeout(30_000),
  });
  if (!response.ok) {
    throw new Error(`${options.method ?? "GET"} ${path.split("?")[0]}: HTTP ${response.status}`);
  }
  return response;
}

const notes = `projects/${CI_PROJECT_ID}/merge_requests/${CI_MERGE_REQUEST_IID}/notes`;

/** Finds the note by the owner of the token, because any user can write the marker. */
async function find(author, page = 1) {
  const response = await call(`${notes}?per_page=100&page=${page}&sort=asc`);
  const mine = (await response.json()).find(
    (note) => note.author.id === author && note.body.startsWith(marker),
  );
  const next = response.headers.get("x-next-page");
  return mine ?? (next ? find(author, Number(next)) : undefined);
}

async function note() {
  if (!existsSync(file)) return `${file} does not exist: nothing was reviewed`;
  if (!CLIPSTACK_REVIEW_TOKEN) {
    return "no note: CLIPSTACK_REVIEW_TOKEN is not set, as in merge requests of forks";
  }
  const review = readFileSync(file, "utf8");
  if (!review.startsWith(`${marker}\n`) || review.length > 65_536) {
    return `no note: ${file} is not a report of 'clipstack review'`;
  }
  const { id: author } = await (await call("user")).json();
  const mine = await find(author);
  const body = JSON.stringify({ body: review });
  if (mine !== undefined) {
    await call(`${notes}/${mine.id}`, { method: "PUT", body });
    return "updated the note";
  }
  if (!existsSync(changes) || readFileSync(changes, "utf8") === "")
    return "nothing changes: no note";
  await call(notes, { method: "POST", body });
  return "wrote the note";
}

try {
  console.log(await note());
} catch (error) {
  console.log(`no note: ${error.message}`);
}
