import { scrollShadows } from "../../contract/scroll-shadows.ts";

/** Style sheet of a report: a light and a dark theme, a narrow screen, and paper. */
export const pageStyle = `
:root {
  --page: #fbfbf9; --surface: #ffffff; --line: #e3e2dc; --ink: #1c1c1a; --soft: #5d5c57;
  --mark: #2f5fb3; --good: #1d7a46; --bad: #b3261e; --bad-soft: #fbe9e7;
  --care: #8a5300; --care-soft: #fdf1dc; --care-line: #d99a2b;
  --embed: #b04a0c; --onnx: #2f5fb3; --trt: #0c7663; --violet: #7a4bb3; --rose: #a8326b; --cyan: #08749a; --lime: #5b7a00;
  --network: #73726b; --decode: #a8500f; --queue: #8a6a00; --input: #7a4bb3; --infer: #2f5fb3; --output: #0c7663; --rest: #b5b4ac; --on: #fff;
  --mono: ui-monospace, "SF Mono", "Cascadia Code", Menlo, Consolas, "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #161614; --surface: #1f1f1c; --line: #383833; --ink: #ecebe6; --soft: #a8a79f;
    --mark: #86aef0; --good: #6cc992; --bad: #f28b82; --bad-soft: #3d211f;
    --care: #f0bd6a; --care-soft: #33280f; --care-line: #b47f1f;
    --embed: #f3a567; --onnx: #86aef0; --trt: #5fcdb2; --violet: #c3a6f2; --rose: #f09abf; --cyan: #5cc6ea; --lime: #b8d65a;
    --network: #a3a29a; --decode: #f3a567; --queue: #e3c25a; --input: #c3a6f2; --infer: #86aef0; --output: #5fcdb2; --rest: #6a6963; --on: #161614;
  }
}
* { box-sizing: border-box; }
html { scroll-padding-top: 16px; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.55 system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "Liberation Sans", sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 44px 28px 88px; }
p, ul { margin: 0 0 12px; max-width: 72ch; overflow-wrap: break-word; }
h1 { margin: 2px 0 14px; font-size: 34px; line-height: 1.2; font-weight: 660; letter-spacing: -0.018em; text-wrap: balance; }
h2 { margin: 56px 0 12px; font-size: 22px; line-height: 1.3; font-weight: 640; letter-spacing: -0.01em; }
h3 { margin: 0 0 6px; font-size: 15px; font-weight: 620; }
code { font-family: var(--mono); font-size: 0.92em; overflow-wrap: anywhere; }
h1 code { font-size: 0.9em; letter-spacing: -0.03em; }
@media (min-width: 761px) { h1 code, .card code, .answer code { white-space: nowrap; } }
small { color: var(--soft); font-weight: 400; }
a { color: var(--mark); }
:focus-visible { outline: 2px solid var(--mark); outline-offset: 2px; }
.skip { position: absolute; left: -999px; }
.skip:focus { left: 16px; top: 16px; background: var(--surface); padding: 6px 12px; z-index: 1; }
.reader { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }

header { border-left: 4px solid var(--good); padding-left: 22px; }
header.care { border-color: var(--care-line); }
header.bad { border-color: var(--bad); }
.kicker { margin: 0; color: var(--soft); font-size: 14px; }
.seal { color: var(--good); margin-right: 12px; }
.care .seal { color: var(--care); }
.bad .seal { color: var(--bad); }
.warning { background: var(--care-soft); border-radius: 6px; padding: 9px 14px; max-width: none; margin: 0 0 18px; }
.warning strong { color: var(--care); }
.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(250px, 1fr)); gap: 10px 28px; margin: 0; }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.facts.wide { grid-template-columns: minmax(0, 1fr); gap: 6px; }
.facts.wide div { display: grid; grid-template-columns: 150px minmax(0, 1fr); align-items: baseline; }

.failed { background: var(--bad-soft); border-radius: 10px; padding: 4px 22px 10px; margin-top: 32px; }
.failed h2 { margin-top: 16px; color: var(--bad); }
.failed ul { max-width: none; padding-left: 20px; }

.cards { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 16px; }
.card { background: var(--surface); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px 12px; }
.card h3 { color: var(--soft); font-weight: 500; font-size: 14px; margin-bottom: 4px; }
.card .choice { font-size: 21px; font-weight: 640; margin: 0; }
.card .choice code { letter-spacing: -0.03em; }
.card .figure { margin: 2px 0 6px; color: var(--soft); }
.card .figure strong { font-size: 30px; color: var(--ink); font-weight: 640; letter-spacing: -0.02em; font-variant-numeric: tabular-nums; }
.card .setting { font-size: 14px; color: var(--soft); margin-bottom: 12px; }
.card ul { margin: 0; padding: 10px 0 0 17px; border-top: 1px solid var(--line); font-size: 14px; }
.card li { margin-bottom: 6px; }
.card .ties, .card .doubt { font-size: 14px; border-radius: 6px; padding: 6px 10px; background: var(--care-soft); }
.card .doubt { color: var(--care); font-weight: 600; }
.card.none { background: none; }
.card.none .choice { color: var(--soft); }

.caveats { background: var(--care-soft); border: 1px solid var(--care-line); border-radius: 10px; padding: 2px 22px 10px; margin-top: 24px; }
.caveats h2 { margin-top: 14px; font-size: 19px; }
.caveats > div { margin-bottom: 10px; }
.caveats h3 { color: var(--care); }
.caveats .know h3 { color: var(--soft); }
.caveats ul { padding-left: 18px; max-width: none; margin: 0; font-size: 15px; }
.caveats li { margin-bottom: 4px; }

nav { margin-top: 48px; border-top: 1px solid var(--line); padding-top: 18px; }
nav h2 { margin: 0 0 8px; font-size: 15px; color: var(--soft); font-weight: 500; }
nav ul { list-style: none; padding: 0; margin: 0; display: flex; flex-wrap: wrap; gap: 4px 20px; max-width: none; font-size: 15px; }

.question { color: var(--soft); margin-bottom: 6px; }
.answer { font-size: 17px; }
ul.answer { padding-left: 20px; }
ul.answer li { margin-bottom: 3px; }
.note { color: var(--soft); font-size: 14px; margin-top: 10px; }
details { margin: 14px 0; border-top: 1px solid var(--line); border-bottom: 1px solid var(--line); padding: 9px 0; }
summary { cursor: pointer; font-weight: 600; font-size: 15px; }
details .tablehead .caption { visibility: hidden; }

.table { margin: 18px 0 8px; }
.tablehead { display: flex; flex-wrap: wrap; justify-content: space-between; align-items: baseline; gap: 4px 16px; }
.caption { font-weight: 600; font-size: 15px; margin: 0; }
td.long, tbody th.long { white-space: pre-line; min-width: 20ch; overflow-wrap: anywhere; }
pre { font-family: var(--mono); font-size: 13px; background: var(--surface); border: 1px solid var(--line); border-radius: 6px; padding: 8px 12px; white-space: pre-wrap; overflow-wrap: anywhere; margin: 6px 0; }
.scroll { position: relative; ${scrollShadows("var(--page)")} }
table { border-collapse: collapse; width: 100%; font-size: 14px; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 14px 6px 0; border-bottom: 1px solid var(--line); vertical-align: baseline; text-align: left; white-space: nowrap; }
th:last-child, td:last-child { padding-right: 0; }
thead th { color: var(--soft); font-weight: 500; font-size: 13px; vertical-align: bottom; white-space: normal; line-height: 1.3; }
tbody th { font-weight: 600; }
thead button { font: inherit; color: inherit; background: none; border: 0; padding: 0; margin: 0; text-align: inherit; cursor: pointer; }
thead button:hover { color: var(--ink); text-decoration: underline; }
th[aria-sort] { color: var(--ink); }
th[aria-sort=ascending] button::after { content: " ▲"; font-size: 10px; }
th[aria-sort=descending] button::after { content: " ▼"; font-size: 10px; }
.number { text-align: right; }
td.good, th.good { color: var(--good); }
td.care, th.care { color: var(--care); font-weight: 600; }
td.bad, th.bad { color: var(--bad); font-weight: 600; }
td.quiet, th.quiet { color: var(--soft); }

figure { margin: 22px 0 26px; }
figcaption { margin-bottom: 6px; max-width: 72ch; }
figcaption span { color: var(--soft); font-size: 14px; }
figure svg { display: block; max-width: 100%; height: auto; }
figure .narrow { display: none; }
.legend { display: flex; flex-wrap: wrap; gap: 4px 18px; margin: 0 0 4px; font-size: 13px; color: var(--soft); max-width: none; }
.legend span { display: inline-flex; align-items: center; gap: 6px; }
.legend .named { display: none; }
td.number + td.text, th.number + th.text { padding-left: 18px; }
svg text { font-family: inherit; font-size: 13px; fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .tick, svg .axis-label, svg .label { fill: var(--soft); }
svg .tick { font-size: 12px; }
svg .inside { fill: var(--on); font-size: 12px; }
svg .grid { stroke: var(--line); stroke-width: 1; }
svg .axis, svg .tickmark { stroke: var(--soft); stroke-width: 1; }
svg .rule { stroke: var(--soft); stroke-width: 1; stroke-dasharray: 2 3; }
svg .hit { fill: transparent; }
.series { color: var(--soft); }
.series.embed, .series.k1 { color: var(--embed); }
.series.onnx, .series.k0 { color: var(--onnx); }
.series.trt, .series.k2 { color: var(--trt); }
.series.uint8 { color: var(--cyan); }
.series.trt.uint8 { color: var(--lime); }
.series.jpeg, .series.k3 { color: var(--violet); }
.series.json { color: var(--soft); }
.series.k4 { color: var(--rose); }
svg .line { fill: none; stroke: currentColor; stroke-width: 2; stroke-linejoin: round; }
svg .line.dashed { stroke-dasharray: 6 4; }
svg .mark { fill: currentColor; stroke: var(--page); stroke-width: 1.5; }
svg .mark.open { fill: var(--page); stroke: currentColor; stroke-width: 2; }
svg .mark.thin { stroke: currentColor; }
svg .crossed { fill: none; stroke: currentColor; stroke-width: 2.5; }
svg .ring { fill: none; stroke: currentColor; stroke-width: 1.5; }
svg .leader { fill: none; stroke: currentColor; stroke-width: 1; opacity: 0.45; }
svg .name { fill: currentColor; font-weight: 600; }
svg .part { fill: var(--rest); }
svg .part.network { fill: var(--network); }
svg .part.decode { fill: var(--decode); }
svg .part.queue { fill: var(--queue); }
svg .part.input { fill: var(--input); }
svg .part.infer { fill: var(--infer); }
svg .part.output { fill: var(--output); }
@media screen and (max-width: 760px) {
  main { padding: 24px 16px 56px; }
  h1 { font-size: 25px; }
  h2 { margin-top: 40px; }
  header { padding-left: 14px; }
  .cards { grid-template-columns: minmax(0, 1fr); }
  figure .wide { display: none; }
  figure .narrow { display: block; }
  .legend .named { display: inline-flex; }
  .caveats, .failed { padding-left: 14px; padding-right: 14px; }
  .facts.wide div { grid-template-columns: minmax(0, 1fr); }
}
@media print {
  :root {
    --page: #fff; --surface: #fff; --line: #ccc; --ink: #000; --soft: #444; --mark: #2f5fb3;
    --good: #1d7a46; --bad: #b3261e; --bad-soft: #fff; --care: #8a5300;
    --embed: #b04a0c; --onnx: #2f5fb3; --trt: #0c7663; --violet: #7a4bb3; --rose: #a8326b; --cyan: #08749a; --lime: #5b7a00;
    --network: #73726b; --decode: #a8500f; --queue: #8a6a00; --input: #7a4bb3; --infer: #2f5fb3; --output: #0c7663; --rest: #b5b4ac; --on: #fff;
    --care-soft: #fff; --care-line: #d99a2b;
  }
  @page { margin: 14mm; }
  * { print-color-adjust: exact; }
  body { font-size: 11px; }
  main { max-width: none; padding: 0; }
  h1 { font-size: 24px; }
  h2 { font-size: 16px; margin-top: 24px; break-after: avoid; }
  .cards { grid-template-columns: repeat(3, minmax(0, 1fr)); }
  .card ul, .card .setting, .caveats ul, .note, table { font-size: 10px; }
  th, td { padding: 2px 6px 2px 0; font-size: 9px; white-space: normal; }
  tbody .number, tbody th:not(.long) { white-space: nowrap; }
  .answer { font-size: 12px; }
  .caption, figcaption, figcaption span, summary, h3, .caveats ul, .warning { font-size: 11px; }
  .facts dt, .card h3, .legend, .kicker, .card .setting, .card .figure { font-size: 10px; }
  .caveats h2 { font-size: 14px; }
  .card { padding: 10px 12px 6px; }
  .card .choice { font-size: 15px; }
  .card .figure strong { font-size: 20px; }
  .card .ties, .card .doubt { font-size: 10px; }
  .table { margin: 10px 0 6px; }
  figure { margin: 12px 0 14px; }
  figure, tr, .card, .caveats li { break-inside: avoid; }
  .scroll { overflow: visible; background: none; }
  figure .wide { display: block; }
  figure .narrow { display: none; }
  nav, .skip { display: none; }
  details::details-content { content-visibility: visible; height: auto; }
}
`;
