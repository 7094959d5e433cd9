import { expect, test } from "vitest";
import { escapeInline, escapeMarkdown, markdownTable } from "./markdown.ts";

test("escaped text is on one line, so that no line becomes a heading, list or row", () => {
  expect(escapeMarkdown("a note\n# of two\r\n\r\nlines")).toBe("a note # of two lines");
  const table = markdownTable({
    caption: "",
    columns: [{ label: "a", kind: "text" }],
    rows: [[{ text: "one\ntwo" }]],
  });
  expect(table.split("\n").at(-1)).toBe("| one two |");
});

test("escaped text has no mentions", () => {
  expect(escapeMarkdown("image@sha256:ab by @someone")).toBe(
    "image@\u200bsha256:ab by @\u200bsomeone",
  );
});

test("markup is escaped except code in backticks", () => {
  expect(escapeMarkdown("[a](b) <i> *c* `d`")).toBe("\\[a\\](b) \\<i\\> \\*c\\* \\`d\\`");
  expect(escapeInline("`onnx-http_uint8` and a_b")).toBe("`onnx-http_uint8` and a\\_b");
});
