import { expect, test } from "vitest";
import { kubernetesQuantities } from "./kubernetes-quantities.ts";

test.each([
  [250, 1_536, "250m", "1536Mi"],
  [1_000, 1_024, "1", "1Gi"],
  [1_500, 10_752, "1500m", "10752Mi"],
  [12_000, 7_168, "12", "7Gi"],
  [1_000_000, 1_048_576, "1k", "1Ti"],
])(
  "writes %i thousandths of a core and %i MiB as Kubernetes stores them",
  (cpuMillicores, memoryMiB, cpu, memory) => {
    expect(kubernetesQuantities({ cpuMillicores, memoryMiB })).toEqual({ cpu, memory });
  },
);
