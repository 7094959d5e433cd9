import { certificateDrill } from "./certificate.ts";
import type { ClusterDrill } from "./cluster-run.ts";
import { diskDrill } from "./disk.ts";
import { drainDrill } from "./drain.ts";
import {
  type ClusterDrillName,
  canaryName,
  type DrillRecord,
  type HostDrillName,
} from "./drill-record.ts";
import { freezeDrill } from "./freeze.ts";
import type { HostDrill } from "./host-run.ts";
import { killDrill } from "./kill.ts";
import { memoryDrill } from "./memory.ts";
import { modelDrill } from "./model.ts";
import { networkDrill } from "./network.ts";
import { queueDrill } from "./queue.ts";
import { quotaDrill } from "./quota.ts";
import { rolloutDrill } from "./rollout.ts";
import { scaleDrill } from "./scale.ts";

/** Drills on a cluster, in the order of the help. */
export const clusterDrills: Readonly<Record<ClusterDrillName, ClusterDrill>> = {
  rollout: rolloutDrill,
  scale: scaleDrill,
  drain: drainDrill,
  quota: quotaDrill,
};

/** Drills on a Docker host, in the order of the help. */
export const hostDrills: Readonly<Record<HostDrillName, HostDrill>> = {
  kill: killDrill,
  freeze: freezeDrill,
  network: networkDrill,
  queue: queueDrill,
  memory: memoryDrill,
  disk: diskDrill,
  model: modelDrill,
  certificate: certificateDrill,
};

/** Question that a record answers. */
export function questionOf(name: DrillRecord["drill"]): string {
  return name === canaryName
    ? "Does the candidate serve a part of the requests as well as the stable release?"
    : { ...clusterDrills, ...hostDrills }[name].question;
}
