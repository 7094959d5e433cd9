import { batchesCheck } from "./batches.ts";
import { batchingCheck } from "./batching.ts";
import type { Check } from "./check.ts";
import { clusterCheck } from "./cluster.ts";
import { containerCheck } from "./container.ts";
import { contentTypeCheck } from "./content-type.ts";
import { embeddingCheck } from "./embedding.ts";
import { endpointsCheck } from "./endpoints.ts";
import { engineCheck } from "./engine.ts";
import { errorsCheck } from "./errors.ts";
import { featuresCheck } from "./features.ts";
import { loadCheck } from "./load.ts";
import { parityCheck } from "./parity.ts";
import { securityHeadersCheck } from "./security-headers.ts";
import { startCheck } from "./start.ts";
import { stopCheck } from "./stop.ts";
import { textCheck } from "./text.ts";
import { wiringCheck } from "./wiring.ts";

/** All checks, in the order in which they run and are reported. */
export const checks: readonly Check[] = [
  wiringCheck,
  startCheck,
  containerCheck,
  clusterCheck,
  endpointsCheck,
  engineCheck,
  contentTypeCheck,
  securityHeadersCheck,
  embeddingCheck,
  parityCheck,
  textCheck,
  batchesCheck,
  batchingCheck,
  errorsCheck,
  featuresCheck,
  loadCheck,
  stopCheck,
];
