import { z } from "zod";

/** Values of settings by their path in the environment file: `embed.server.maxBatchSize`. */
const settings = z.record(z.string(), z.number());

/** Settings that were measured, and what became of them. */
const candidate = z.strictObject({
  /** Name of its environment in load points and searches; `candidate-1` has the present settings. */
  name: z.string(),
  settings,
  rounds: z.array(
    z.strictObject({
      /** Number of the round, from 1; candidates measured in the same round share its number. */
      round: z.int().min(1),
      /** Highest confirmed rate within the SLO; 0 if no rate met it. */
      imagesPerSecond: z.number().min(0),
      /** Latency at the percentile of the SLO, at that rate. */
      percentileMs: z.number().optional(),
    }),
  ),
  /** Why it was not measured in all rounds. `slower`: its interval lies below the fastest; `slo`: in a round, no rate met the SLO. */
  ended: z.strictObject({ round: z.int().min(1), reason: z.enum(["slower", "slo"]) }).optional(),
});
export type TuneCandidate = z.infer<typeof candidate>;

/** Result of `clipstack tune`. */
export const tuneResult = z.strictObject({
  environment: z.string(),
  /** Station of the capacity model that the present settings saturate first, by their measured times. */
  bottleneck: z.string().optional(),
  /** Settings in the order in which they were varied. */
  varied: z.array(z.string()),
  candidates: z.array(candidate),
  /** First round of the final comparison of the present with the best settings; absent if the present ones are the best. */
  finalRound: z.int().min(1).optional(),
  /** Name of the best candidate; absent after an interrupt and if `not measured`. */
  best: z.string().optional(),
  /** `slo missed`: no candidate met the SLO; `not measured`: the load generator was too slow for the present settings. Absent after an interrupt. */
  verdict: z.enum(["improved", "already best", "slo missed", "not measured"]).optional(),
  /** Best ÷ present settings in the final comparison, 95 % confidence; absent without one, or if the present settings miss the SLO. */
  ratio: z.strictObject({ ratio: z.number(), low: z.number(), high: z.number() }).optional(),
});
export type TuneResult = z.infer<typeof tuneResult>;
