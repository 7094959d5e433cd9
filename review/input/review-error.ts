import { UserError } from "../../contract/user-error.ts";

const longLine = 500;

/** What cannot be reviewed, in one line that names the file, the rule and what is there. Never a part of its content. */
export class ReviewError extends UserError {
  override readonly name = "ReviewError";

  constructor(message: string) {
    // an address of a plan may have any character, and any length
    const line = message.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\s]+/gu, " ");
    super(line.length <= longLine ? line : `${line.slice(0, longLine - 1)}…`);
  }
}
