import { UserError } from "../../contract/user-error.ts";

const maxCharacters = 500;

/** Input that cannot be reviewed. The message is one line that names the file and the rule, and never quotes the content. */
export class ReviewError extends UserError {
  override readonly name = "ReviewError";

  constructor(message: string) {
    // an address in a plan may contain any characters
    const line = message.replaceAll(/[\p{Cc}\p{Zl}\p{Zp}\s]+/gu, " ");
    super(line.length <= maxCharacters ? line : `${line.slice(0, maxCharacters - 1)}…`);
  }
}
