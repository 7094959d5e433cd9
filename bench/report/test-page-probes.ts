/** Expressions evaluated in the browser. They are strings, because the project is compiled without DOM types. */

/** Violations found by axe-core, which must be loaded in the page, as lines. */
export const axeViolations = `
axe.run().then(({ violations }) =>
  violations.map(({ id, nodes }) => id + ": " + nodes[0].html + " " + nodes[0].failureSummary + " (" + nodes.length + ")"))`;

export const openAll = `
for (const folded of document.querySelectorAll("details")) folded.open = true`;

/** Name, width, number of marks, overflowing texts and smallest font size of each visible plot. */
export const plotFacts = `
[...document.querySelectorAll("figure svg[role=img]")].filter((plot) => plot.checkVisibility()).map((plot) => {
  const frame = plot.getBoundingClientRect();
  const texts = [...plot.querySelectorAll("text")];
  return {
    name: plot.getAttribute("aria-label"),
    width: frame.width,
    marks: plot.querySelectorAll(".mark, rect.part, path.line").length,
    outside: texts.filter((text) => {
      const box = text.getBoundingClientRect();
      return box.left < frame.left - 1 || box.right > frame.right + 1 || box.bottom > frame.bottom + 1;
    }).map((text) => text.textContent),
    smallest: Math.min(...texts.map((text) => parseFloat(getComputedStyle(text).fontSize) * text.getScreenCTM().a)),
  };
})`;

/** Texts and marks of plots with insufficient contrast to their background. */
export const poorContrast = `
(() => {
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map((value) => {
      const part = Number(value) / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (a, b) => {
    const [low, high] = [luminance(a), luminance(b)].sort((p, q) => p - q);
    return (high + 0.05) / (low + 0.05);
  };
  const page = getComputedStyle(document.body).backgroundColor;
  const found = new Set();
  const check = (selector, property, least) => {
    for (const element of document.querySelectorAll("figure " + selector)) {
      const ground = element.classList.contains("inside") ? getComputedStyle(element.previousElementSibling).fill : page;
      const value = contrast(getComputedStyle(element)[property], ground);
      if (value < least) found.add(selector + " " + element.outerHTML.slice(0, 90) + ": " + value.toFixed(2));
    }
  };
  check("svg text", "fill", 4.5);
  check("svg .mark:not(.open)", "fill", 3);
  check("svg .line", "stroke", 3);
  check("svg rect.part:not(.server)", "fill", 3);
  return [...found];
})()`;

export const beforePrint = `
dispatchEvent(new Event("beforeprint"))`;

export const pageWidth = "document.documentElement.scrollWidth";

/** Rows of tables that take no room. */
export const hiddenRows = `
[...document.querySelectorAll("table.data tr")].filter((row) => row.getBoundingClientRect().height === 0).length`;
