import { rmSync } from "node:fs";
import { clustersFolder, removeNotedClusters } from "./test-cluster.ts";

/**
 * The tests that need a Kubernetes cluster share one: it is made when the first asks for it. It, and what else they note, is
 * removed after the last, and where the run is interrupted: a signal ends vitest at once, without its teardown.
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
