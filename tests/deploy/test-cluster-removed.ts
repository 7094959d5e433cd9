import { rmSync } from "node:fs";
import { clustersFolder, removeNotedClusters } from "./test-cluster.ts";

/**
 * Tests that need a Kubernetes cluster share one, created on first use. It is removed after the last test and when the run is
 * interrupted, because a signal ends vitest without its teardown.
 */
export default function clustersRemoved(): () => void {
  const folder = clustersFolder();
  const remove = () => {
    removeNotedClusters(folder);
    rmSync(folder, { recursive: true, force: true });
  };
  process.once("exit", remove);
  return () => {
    remove();
    process.off("exit", remove);
  };
}
