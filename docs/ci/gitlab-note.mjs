// `node gitlab-note.mjs review.md`: write it as a note of the merge request, or update the one that is there. Ends well where it
// may not: the result of the pipeline is that of the review.
import { existsSync, readFileSync } from "node:fs";

const marker = "<!-- clipstack-review -->";
const [file = "review.md"] = process.argv.slice(2);
const { CI_API_V4_URL, CI_PROJECT_ID, CI_MERGE_REQUEST_IID, CLIPSTACK_REVIEW_TOKEN } = process.env;

if (!existsSync(file)) {
  console.log(`${file} is not there: nothing was reviewed`);
} else if (!CLIPSTACK_REVIEW_TOKEN) {
  console.log("no note: CLIPSTACK_REVIEW_TOKEN is not set, as in merge requests of forks");
} else {
  const notes = `${CI_API_V4_URL}/projects/${CI_PROJECT_ID}/merge_requests/${CI_MERGE_REQUEST_IID}/notes`;
  const call = async (url, options = {}) => {
    const response = await fetch(url, {
      ...options,
      headers: { "content-type": "application/json", "private-token": CLIPSTACK_REVIEW_TOKEN },
      signal: AbortSignal.timeout(30_000),
    });
    if (!response.ok) throw new Error(`${options.method ?? "GET"} notes: HTTP ${response.status}`);
    return response;
  };
  const find = async (page = 1) => {
    const response = await call(`${notes}?per_page=100&page=${page}&sort=asc`);
    const mine = (await response.json()).find(({ body }) => body.startsWith(marker));
    const next = response.headers.get("x-next-page");
    return mine ?? (next ? find(Number(next)) : undefined);
  };
  try {
    const mine = await find();
    const body = JSON.stringify({ body: readFileSync(file, "utf8") });
    if (mine === undefined) await call(notes, { method: "POST", body });
    else await call(`${notes}/${mine.id}`, { method: "PUT", body });
    console.log(mine === undefined ? "wrote the note" : "updated the note");
  } catch (error) {
    console.log(`no note: ${error.message}`);
  }
}
