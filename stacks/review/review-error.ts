/** What cannot be reviewed, in one line that names the file, the rule and what is there. Never a part of its content. */
export class ReviewError extends Error {
  override readonly name = "ReviewError";
}
