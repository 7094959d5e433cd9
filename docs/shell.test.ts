import { expect, test } from "vitest";
import { commandsOfBlock, commandsOfSession } from "./shell.ts";

const block = (...lines: readonly string[]) => ({ language: "sh", line: 10, lines });
const wordsOf = (...lines: readonly string[]) =>
  commandsOfBlock(block(...lines)).flatMap(({ commands }) => commands);

test("reads a command on several lines as one, where it begins", () => {
  const [command] = commandsOfBlock(block("", "npx clipstack bench \\", "    --window 5   # why"));
  expect(command).toMatchObject({ line: 11, text: "npx clipstack bench --window 5" });
});

test("takes pipes and lists apart, and leaves out variables and where output goes", () => {
  expect(
    wordsOf("A=1 npx clipstack report a.json > a.md 2>&1 && curl -F image=@b.jpg | sh"),
  ).toEqual([["npx", "clipstack", "report", "a.json"], ["curl", "-F", "image=@b.jpg"], ["sh"]]);
});

test("keeps what is in quotes together", () => {
  expect(wordsOf(`kubectl patch -p '{"a":"b | c # d"}' --import "x y=z"`)).toEqual([
    ["kubectl", "patch", "-p", '{"a":"b | c # d"}', "--import", "x y=z"],
  ]);
});

test("keeps a command inside of a command in its word, and skips a text that is fed to one", () => {
  expect(wordsOf("export A=$(.ci/hey) B=1", "cat <<'END'", "npx nothing", "END", "ls")).toEqual([
    ["export", "A=$(.ci/hey)", "B=1"],
    ["cat"],
    ["ls"],
  ]);
});

test("knows what a command needs, from its own comment or from the head of its block", () => {
  const needsOf = (...lines: readonly string[]) =>
    commandsOfBlock(block(...lines)).map(({ needs }) => needs);
  expect(needsOf("a", "b   # needs a GPU: slow", "c")).toEqual([undefined, "a GPU", undefined]);
  expect(needsOf("# needs kind, of course", "a", "b")).toEqual(["kind", "kind"]);
});

test("of a session reads only what is typed", () => {
  const commands = commandsOfSession(block("$ npx clipstack tunnel", "npx is what it says"));
  expect(commands.map(({ text }) => text)).toEqual(["npx clipstack tunnel"]);
});
