import { changeRules } from "./rules/changes.ts";
import { containerRules } from "./rules/containers.ts";
import { exposureRules } from "./rules/exposure.ts";
import { healthRules } from "./rules/health.ts";
import { imageRules } from "./rules/images.ts";
import { kubernetesRules } from "./rules/kubernetes.ts";
import { probeRules } from "./rules/probes.ts";
import type { ReviewRule } from "./rules/rule.ts";
import { secretRules } from "./rules/secrets.ts";
import { stateRules } from "./rules/state.ts";
import { tritonRules } from "./rules/triton.ts";

/** A page of related rules, for people who look for one. */
export interface RuleFamily {
  readonly title: string;
  readonly rules: readonly ReviewRule[];
}

export const ruleFamilies: readonly RuleFamily[] = [
  { title: "Images", rules: imageRules },
  { title: "Exposure", rules: exposureRules },
  { title: "Containers and pods", rules: containerRules },
  { title: "Secrets", rules: secretRules },
  { title: "Triton and GPUs", rules: tritonRules },
  { title: "Health, start and stop", rules: [...healthRules, ...probeRules] },
  { title: "Kubernetes", rules: kubernetesRules },
  { title: "State and providers", rules: stateRules },
  { title: "The change itself", rules: changeRules },
];

/** Every rule that a review runs. */
export const rules: readonly ReviewRule[] = ruleFamilies.flatMap((family) => family.rules);
