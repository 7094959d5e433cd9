import { rmSync } from "node:fs";
import { removeSharedCluster, sharedClusterFolder } from "./test-cluster.ts";

/** The tests that need a Kubernetes cluster share one: it is made when the first asks for it, and removed after the last. */
export default function clusterRemoved(): () => Promise<void> {
  const folder = sharedClusterFolder();
  return async () => {
    await removeSharedCluster(folder);
    rmSync(folder, { recursive: true, force: true });
  };
}
