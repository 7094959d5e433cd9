import { z } from "zod";
import ruleIds from "../../contract/rule-ids.json" with { type: "json" };
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

/** SLO and waivers of a plan review. */
export const review = z
  .strictObject({
    p99GoalMilliseconds: integer(1, 600_000)
      .optional()
      .describe(
        "SLO: 99th percentile of the latency. A review warns if the queue delay of a Triton server exceeds half of it (rule `queue-delay-goal`). It is also the default SLO of `monitoring` on a Docker host.",
      ),
    waivers: z
      .array(waiver)
      .default([])
      .describe("Findings of a review that are accepted until a date (docs/rules/README.md)."),
  })
  .prefault({})
  .describe("Read by `clipstack review`; does not affect the services.");
