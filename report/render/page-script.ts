/**
 * Only script of a report: makes table headings sort buttons. The page is complete without it. Plain JavaScript, because it is embedded
 * unchanged.
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
for (const table of document.querySelectorAll("table.data")) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    button.addEventListener("click", () => sort(table, column, heading));
    heading.append(button);
  });
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
