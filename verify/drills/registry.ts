import { drainDrill } from "./drain.ts";
import type { Drill } from "./drill.ts";
import type { DrillName } from "./drill-record.ts";
import { quotaDrill } from "./quota.ts";
import { rolloutDrill } from "./rollout.ts";
import { scaleDrill } from "./scale.ts";

/** All drills, in the order of the help. */
export const drills: Readonly<Record<DrillName, Drill>> = {
  rollout: rolloutDrill,
  scale: scaleDrill,
  drain: drainDrill,
  quota: quotaDrill,
};
