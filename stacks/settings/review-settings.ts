import { z } from "zod";
import ruleIds from "../../contract/rule-ids.json" with { type: "json" };
import { ownRuleId, rulePacks } from "../../contract/rule-packs.ts";
import { integer, text } from "./setting-types.ts";

const ruleId = z.enum(ruleIds, "must be the id of a rule (docs/rules/README.md)");

const waiver = z.strictObject({
  rule: ruleId.describe("Id of the rule that reports the finding."),
  address: text("an address or the path of a construct", /^\S(.*\S)?$/)
    .optional()
    .describe(
      "Address of a resource, or path of a construct such as `single-gpu/triton-onnx`, which covers everything below it.",
    ),
  reason: text("a reason: one line of 10 to 300 characters", /^\S.{8,298}\S$/).describe(
    "Reason for the waiver, repeated in the review.",
  ),
  expires: z.iso
    .date("must be a day, like '2027-01-31'")
    .describe("Last day of the waiver; an expired waiver is a finding."),
});

const p99GoalMilliseconds = integer(1, 600_000).optional();

/** SLO and waivers of a plan review. */
export const review = z
  .strictObject({
    p99GoalMilliseconds: p99GoalMilliseconds.describe(
      "SLO: 99th percentile of the latency. A review warns if the queue delay of a Triton server exceeds half of it (rule `queue-delay-goal`). It is also the default SLO of `monitoring` on a Docker host.",
    ),
    waivers: z
      .array(waiver)
      .default([])
      .describe("Findings of a review that are accepted until a date (docs/rules/README.md)."),
  })
  .prefault({})
  .describe("Read by `clipstack review`; does not affect the services.");

/** Id of a built-in rule, or of a rule of a module, which cannot be that of a built-in rule. */
const idMessage =
  "must be the id of a rule (docs/rules/README.md), or of an own rule, which starts with 'own-'";
const anyRuleId = z.union([ruleId, z.string().regex(ownRuleId, idMessage)]);

/** Contents of `.clipstack-review.yaml`: which rules apply to the plans of a repository. */
export const reviewFile = z
  .strictObject({
    packs: z
      .array(z.enum(rulePacks))
      .min(1, "must name a pack")
      .default([...rulePacks])
      .describe("Packs whose rules are on."),
    rules: z
      .partialRecord(anyRuleId, z.enum(["on", "off", "error", "warning", "note"]), {
        error: ({ code }) => (code === "invalid_key" ? idMessage : undefined),
      })
      .default({})
      .describe("Turns single rules on or off, or sets their severity."),
    modules: z
      .array(
        text("the path of a .mjs file below the folder of this file", /^(?!\/)(?!.*\.\.).+\.mjs$/),
      )
      .default([])
      .describe("Files with own rules (docs/review.md)."),
    p99GoalMilliseconds: p99GoalMilliseconds.describe("Goal of the rule `queue-delay-goal`."),
    waivers: z
      .array(
        waiver.extend({
          rule: anyRuleId.describe("Id of the rule that reports the finding."),
          stack: text("the name of a stack", /^\S+$/)
            .optional()
            .describe("Stack of the finding; without it, all that have no environment file."),
        }),
      )
      .default([])
      .describe("Findings that are accepted until a date."),
  })
  .describe("Settings of `clipstack review`, read from the root of the repository.");
