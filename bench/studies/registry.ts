import { batchStudy } from "./batch.ts";
import { coldStartStudy } from "./cold-start.ts";
import { concurrencyStudy } from "./concurrency.ts";
import { linkStudy } from "./link.ts";
import { memoryStudy } from "./memory-study.ts";
import { operatorsStudy } from "./operators.ts";
import { protocolStudy } from "./protocol.ts";
import { queueDelayStudy } from "./queue-delay-study.ts";
import { scalingStudy } from "./scaling.ts";
import { serializationStudy } from "./serialization.ts";
import type { Study } from "./study.ts";
import { topologyStudy } from "./topology.ts";

/** Every study, in the order in which they run. */
export const studies: readonly Study[] = [
  operatorsStudy,
  coldStartStudy,
  batchStudy,
  concurrencyStudy,
  protocolStudy,
  serializationStudy,
  linkStudy,
  memoryStudy,
  queueDelayStudy,
  scalingStudy,
  topologyStudy,
];
