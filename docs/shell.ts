import type { CodeBlock } from "./markdown.ts";

/** Commands in the code blocks of pages: enough of the shell for what is written there. */

export interface DocumentedCommand {
  readonly line: number;
  /** As it is written, on one line, without its comment. */
  readonly text: string;
  /** Simple commands that it runs, as their words: without variables in front, pipes, redirections. */
  readonly commands: readonly (readonly string[])[];
  /** What the page says that it needs, in the comment of its line or at the head of its block: `a GPU`. */
  readonly needs: string | undefined;
}

const needsPattern = /\bneeds ([^:;,.]+)/;

/** Commands of a block of the language `sh`: every line that is no comment. */
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

/** Commands of a block of the language `console`: lines that begin with `$ `; the others are what they print. */
export function commandsOfSession(block: CodeBlock): readonly DocumentedCommand[] {
  return block.lines.flatMap((content, index) =>
    content.startsWith("$ ")
      ? commandsOfBlock({ ...block, line: block.line + index, lines: [content.slice(2)] })
      : [],
  );
}

function splitComment(line: string): { readonly code: string; readonly comment?: string } {
  let quote = "";
  for (const [index, character] of [...line].entries()) {
    if (quote !== "") {
      if (character === quote) quote = "";
    } else if (character === "'" || character === '"') {
      quote = character;
    } else if (character === "#" && /\s/.test([...line][index - 1] ?? " ")) {
      const characters = [...line];
      return {
        code: characters.slice(0, index).join(""),
        comment: characters.slice(index).join(""),
      };
    }
  }
  return { code: line };
}

/** Words, and between them what separates commands. */
function tokens(text: string): readonly string[] {
  const found: string[] = [];
  let word: string | undefined;
  let quote = "";
  let depth = 0;
  const end = () => {
    if (word !== undefined) found.push(word);
    word = undefined;
  };
  const characters = [...text];
  for (let index = 0; index < characters.length; index++) {
    const character = characters[index] ?? "";
    const next = characters[index + 1] ?? "";
    if (quote !== "") {
      if (character === quote) quote = "";
      else word = `${word ?? ""}${character}`;
    } else if (depth > 0 || (character === "$" && next === "(")) {
      if (character === "(") depth++;
      if (character === ")") depth--;
      if (character === "$" && next === "(") {
        depth++;
        index++;
        word = `${word ?? ""}$(`;
      } else {
        word = `${word ?? ""}${character}`;
      }
    } else if (character === "'" || character === '"') {
      quote = character;
      word ??= "";
    } else if (/\s/.test(character)) {
      end();
    } else if (/[|&;<>]/.test(character)) {
      // a number in front of a redirection belongs to it
      if (character === ">" && word !== undefined && /^\d$/.test(word)) word = undefined;
      end();
      let operator = character;
      while (/[|&<>]/.test(characters[index + 1] ?? "")) operator += characters[++index];
      found.push(`\0${operator}`);
    } else {
      word = `${word ?? ""}${character}`;
    }
  }
  end();
  return found;
}

function simpleCommands(text: string): readonly (readonly string[])[] {
  const commands: string[][] = [[]];
  let skip = false;
  for (const token of tokens(text)) {
    if (token.startsWith("\0")) {
      const operator = token.slice(1);
      // what follows `>&` is a descriptor, what follows `>` and `<` a file
      if (/[<>]/.test(operator)) skip = true;
      else commands.push([]);
    } else if (skip) {
      skip = false;
    } else {
      const current = commands.at(-1) ?? [];
      if (current.length === 0 && /^[A-Z_]+=/.test(token)) continue;
      current.push(token);
    }
  }
  return commands.filter((words) => words.length > 0);
}
