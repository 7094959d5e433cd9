import { drainDrill } from "./drain.ts";
import type { Drill } from "./drill.ts";
import { quotaDrill } from "./quota.ts";
import { rolloutDrill } from "./rollout.ts";
import { scaleDrill } from "./scale.ts";

/** All drills, in the order of the help. */
export const drills: readonly Drill[] = [rolloutDrill, scaleDrill, drainDrill, quotaDrill];
