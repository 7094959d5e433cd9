import { batchStudy } from "./batch.ts";
import { coldStartStudy } from "./cold-start.ts";
import { concurrencyStudy } from "./concurrency.ts";
import { scalingStudy, topologyStudy } from "./gpu-studies.ts";
import { memoryStudy } from "./memory-study.ts";
import { protocolStudy } from "./protocol.ts";
import { queueDelayStudy } from "./queue-delay-study.ts";
import type { Study } from "./study.ts";

/** Every study, in the order in which they run. */
export const studies: readonly Study[] = [
  coldStartStudy,
  batchStudy,
  concurrencyStudy,
  protocolStudy,
  memoryStudy,
  queueDelayStudy,
  scalingStudy,
  topologyStudy,
];
