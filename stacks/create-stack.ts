import type { Construct } from "constructs";
import { BulkStack } from "./bulk.ts";
import { KindStack } from "./kind.ts";
import { KubernetesStack } from "./kubernetes.ts";
import { MultiGpuStack } from "./multi-gpu.ts";
import type { EnvironmentSettings } from "./settings/settings.ts";
import type { InferenceStack } from "./shared/inference-stack.ts";
import { SingleGpuStack } from "./single-gpu.ts";

export function createStack(scope: Construct, environment: EnvironmentSettings): InferenceStack {
  const { name } = environment;
  switch (environment.stack) {
    case "single-gpu":
      return new SingleGpuStack(scope, name, environment.settings);
    case "multi-gpu":
      return new MultiGpuStack(scope, name, environment.settings);
    case "kind":
      return new KindStack(scope, name, environment.settings);
    case "kubernetes":
      return new KubernetesStack(scope, name, environment.settings);
    case "bulk":
      return new BulkStack(scope, name, environment.settings);
  }
}
