import type { CodeBlock } from "./markdown.ts";

/** Parses the shell commands in code blocks of the documentation. */

export interface DocumentedCommand {
  readonly line: number;
  /** Text of the command on one line, without its comment. */
  readonly text: string;
  /** Words of each simple command, without variable assignments, pipes and redirections. */
  readonly commands: readonly (readonly string[])[];
  /** Requirement stated in the comment of its line or in the first line of its block: `a GPU`. */
  readonly needs: string | undefined;
}

const needsPattern = /\bneeds ([^:;,.]+)/;

/** Commands of an `sh` block: every line that is not a comment. */
export function commandsOfBlock(block: CodeBlock): readonly DocumentedCommand[] {
  const found: DocumentedCommand[] = [];
  let blockNeeds: string | undefined;
  let heredoc: string | undefined;
  let pending = "";
  let first = 0;
  for (const [index, content] of block.lines.entries()) {
    if (heredoc !== undefined) {
      if (content === heredoc) heredoc = undefined;
      continue;
    }
    if (pending === "") {
      if (content.trim() === "") continue;
      if (content.startsWith("#")) {
        blockNeeds = needsPattern.exec(content)?.[1]?.trim() ?? blockNeeds;
        continue;
      }
      first = index;
    }
    const { code, comment } = splitComment(content);
    if (code.trimEnd().endsWith("\\") && comment === undefined) {
      pending += `${code.trimEnd().slice(0, -1).trimEnd()} `;
      continue;
    }
    const text = `${pending}${pending === "" ? code : code.trimStart()}`.trim();
    pending = "";
    heredoc = /(?<!<)<<'?(\w+)'?/.exec(text)?.[1];
    const own = needsPattern.exec(comment ?? "")?.[1]?.trim();
    found.push({
      line: block.line + first,
      text,
      commands: simpleCommands(text),
      needs: own ?? blockNeeds,
    });
  }
  return found;
}

/** Commands of a `console` block: lines that start with `$ `; the other lines are output. */
export function commandsOfSession(block: CodeBlock): readonly DocumentedCommand[] {
  return block.lines.flatMap((content, index) =>
    content.startsWith("$ ")
      ? commandsOfBlock({ ...block, line: block.line + index, lines: [content.slice(2)] })
      : [],
  );
}

/** A comment, an operator with an optional file descriptor, or a word with quoted parts and command substitutions. */
const tokenPattern =
  /(?<!\S)#(?<comment>.*)|(?<operator>(?:(?<!\S)\d(?=[<>]))?[|&;<>]+)|(?:\$\((?:[^()]|\([^()]*\))*\)|'[^']*'|"[^"]*"|[^\s|&;<>'"])+/g;

function splitComment(line: string): { readonly code: string; readonly comment?: string } {
  for (const { index, groups } of line.matchAll(tokenPattern)) {
    if (groups?.comment !== undefined) {
      return { code: line.slice(0, index), comment: groups.comment };
    }
  }
  return { code: line };
}

function simpleCommands(text: string): readonly (readonly string[])[] {
  const commands: string[][] = [[]];
  let skip = false;
  for (const [token, , operator] of text.matchAll(tokenPattern)) {
    if (operator !== undefined) {
      // skips the target of a redirection
      if (/[<>]/.test(operator)) skip = true;
      else commands.push([]);
    } else if (skip) {
      skip = false;
    } else {
      const current = commands.at(-1)!;
      if (current.length === 0 && /^[A-Z_]+=/.test(token)) continue;
      current.push(token.replaceAll(/'([^']*)'|"([^"]*)"/g, "$1$2"));
    }
  }
  return commands.filter((words) => words.length > 0);
}
