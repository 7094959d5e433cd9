import { parseArgs } from "node:util";
import { checkText, crossValidationText } from "./calibration-text.ts";
import { checkPublished, summarize } from "./check.ts";
import { leaveOneOut } from "./cross-validation.ts";
import { ingestProfile } from "./identifiability.ts";
import { publishedFacts } from "./table.ts";

const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: { json: { type: "boolean", default: false }, help: { type: "boolean", default: false } },
});
const [report = "check"] = positionals;
const facts = publishedFacts();

const reports: Readonly<Record<string, () => { readonly text: string; readonly json: object }>> = {
  check() {
    const figures = checkPublished(facts);
    const summary = summarize(figures);
    if (summary.broken.length > 0) process.exitCode = 1;
    return { text: checkText(figures, summary), json: { figures, summary } };
  },
  "cross-validate"() {
    const rows = leaveOneOut(facts);
    const profile = ingestProfile(facts);
    return { text: crossValidationText(rows, profile), json: { rows, profile } };
  },
  parameters() {
    return { text: JSON.stringify(facts.parameters, null, 2), json: facts.parameters };
  },
};

const run = reports[report];
if (values.help || run === undefined) {
  console.log(`Usage: npm run lab -- calibrate [${Object.keys(reports).join("|")}] [--json]

Calibrates the model of clipstack capacity with the figures in lab/published: compares it with every figure (check, the default;
exit code 1 if it does not reproduce one that sets a parameter), predicts each setting by a model calibrated without it
(cross-validate), or prints the parameters as JSON. npm run render writes the result to bench/capacity/parameters.json.`);
  process.exitCode = values.help ? 0 : 2;
} else {
  const { text, json } = run();
  console.log(values.json ? JSON.stringify({ schema: 1, ...json }, null, 2) : text);
}
