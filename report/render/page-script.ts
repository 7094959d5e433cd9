/**
 * Only script of a report: makes table headings sort buttons and adds copy buttons. The page is complete without it. Plain
 * JavaScript, because it is embedded unchanged.
 */
export const pageScript = `
"use strict";
const statusLine = document.getElementById("status");
const announce = (text) => { statusLine.textContent = ""; requestAnimationFrame(() => { statusLine.textContent = text; }); };
const keyOf = (cell) => {
  const key = cell.dataset.sort;
  if (key === undefined) return cell.textContent.trim();
  return key === "" ? undefined : Number.isNaN(Number(key)) ? key : Number(key);
};
const compare = (a, b) =>
  typeof a === "number" && typeof b === "number"
    ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
function sort(table, column, heading) {
  const descending = heading.getAttribute("aria-sort") === "ascending";
  for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row, index) => ({ row, index, key: keyOf(row.cells[column]) }));
  rows.sort((a, b) => {
    // absent figures are last in both orders
    if (a.key === undefined || b.key === undefined) {
      return a.key === b.key ? a.index - b.index : a.key === undefined ? 1 : -1;
    }
    return (descending ? -1 : 1) * compare(a.key, b.key) || a.index - b.index;
  });
  body.append(...rows.map(({ row }) => row));
  announce("Sorted by " + heading.textContent.trim() + ", " + (descending ? "descending" : "ascending"));
}
const texts = (table) =>
  [...table.rows].map((row) => [...row.cells].map((cell) => cell.textContent.trim().replace(/\\s+/g, " ")));
const asTsv = (table) => texts(table).map((row) => row.join("\\t")).join("\\n");
const asMarkdown = (table) => {
  const line = (row) => "| " + row.map((text) => text.replace(/[\\\\|]/g, "\\\\$&")).join(" | ") + " |";
  const [head, ...rows] = texts(table);
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\\n");
};
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = document.createElement("textarea");
    area.value = text;
    area.setAttribute("aria-hidden", "true");
    area.className = "reader";
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}
for (const table of document.querySelectorAll("table.data")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(table, column, heading));
    heading.append(button);
  });
  const bar = document.createElement("div");
  bar.className = "copy";
  for (const [label, render] of [["Copy as TSV", asTsv], ["Copy as Markdown", asMarkdown]]) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = label;
    button.addEventListener("click", async () => {
      const focused = document.activeElement;
      const done = await copy(render(table));
      if (focused instanceof HTMLElement) focused.focus();
      announce(done ? "Copied" : "Could not be copied: select the table");
      button.textContent = done ? "Copied ✓" : "Not copied";
      setTimeout(() => { button.textContent = label; }, 1500);
    });
    bar.append(button);
  }
  table.closest(".table").querySelector(".tablehead").append(bar);
}
addEventListener("beforeprint", () => {
  for (const folded of document.querySelectorAll("details:not([open])")) {
    folded.open = true;
    folded.dataset.folded = "";
  }
});
addEventListener("afterprint", () => {
  for (const folded of document.querySelectorAll("details[data-folded]")) {
    folded.open = false;
    delete folded.dataset.folded;
  }
});
`;
