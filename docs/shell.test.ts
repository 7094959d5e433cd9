import { expect, test } from "vitest";
import { commandsOfBlock, commandsOfSession } from "./shell.ts";

const block = (...lines: readonly string[]) => ({ language: "sh", line: 10, lines });
const wordsOf = (...lines: readonly string[]) =>
  commandsOfBlock(block(...lines)).flatMap(({ commands }) => commands);

test("reads a command on several lines as one, at its first line", () => {
  const [command] = commandsOfBlock(block("", "npx clipstack bench \\", "    --window 5   # why"));
  expect(command).toMatchObject({ line: 11, text: "npx clipstack bench --window 5" });
});

test("splits pipes and lists, and omits variables and redirections", () => {
  expect(
    wordsOf("A=1 npx clipstack report a.json > a.md 2>&1 && curl -F image=@b.jpg | sh"),
  ).toEqual([["npx", "clipstack", "report", "a.json"], ["curl", "-F", "image=@b.jpg"], ["sh"]]);
});

test("keeps quoted text in one word", () => {
  expect(wordsOf(`kubectl patch -p '{"a":"b | c # d"}' --import "x y=z"`)).toEqual([
    ["kubectl", "patch", "-p", '{"a":"b | c # d"}', "--import", "x y=z"],
  ]);
});

test("keeps command substitutions in one word, and skips here-documents", () => {
  expect(wordsOf("export A=$(.ci/hey) B=1", "cat <<'END'", "npx nothing", "END", "ls")).toEqual([
    ["export", "A=$(.ci/hey)", "B=1"],
    ["cat"],
    ["ls"],
  ]);
});

test("reads the requirement of a command from its comment or from the first line of its block", () => {
  const needsOf = (...lines: readonly string[]) =>
    commandsOfBlock(block(...lines)).map(({ needs }) => needs);
  expect(needsOf("a", "b   # needs a GPU: slow", "c")).toEqual([undefined, "a GPU", undefined]);
  expect(needsOf("# needs kind, of course", "a", "b")).toEqual(["kind", "kind"]);
});

test("reads only the typed commands of a session", () => {
  const commands = commandsOfSession(block("$ npx clipstack tunnel", "npx in the output"));
  expect(commands.map(({ text }) => text)).toEqual(["npx clipstack tunnel"]);
});
