import { changeRules } from "./changes.ts";
import { containerRules } from "./containers.ts";
import { exposureRules } from "./exposure.ts";
import { gpuRules } from "./gpus.ts";
import { healthRules } from "./health.ts";
import { imageRules } from "./images.ts";
import { kubernetesRules } from "./kubernetes.ts";
import { modelRules } from "./models.ts";
import type { ReviewRule } from "./rule.ts";
import { secretRules } from "./secrets.ts";
import { stateRules } from "./state.ts";
import { tritonRules } from "./triton.ts";

/** Group of related rules, a section of the overview page. */
export interface RulePack {
  readonly title: string;
  readonly rules: readonly ReviewRule[];
}

export const rulePacks: readonly RulePack[] = [
  { title: "Images", rules: imageRules },
  { title: "Exposure", rules: exposureRules },
  { title: "Containers and pods", rules: containerRules },
  { title: "Secrets", rules: secretRules },
  { title: "Triton", rules: tritonRules },
  { title: "Models and engines", rules: modelRules },
  { title: "GPUs", rules: gpuRules },
  { title: "Health, start and stop", rules: healthRules },
  { title: "Kubernetes", rules: kubernetesRules },
  { title: "State and providers", rules: stateRules },
  { title: "The change itself", rules: changeRules },
];

export const rules: readonly ReviewRule[] = rulePacks.flatMap(({ rules }) => rules);

/** `contract/rule-ids.json`: rule ids as data, because settings accept them in waivers but must not load the rules. */
export function ruleIdFile(): { readonly path: string; readonly text: string } {
  const ids = rules.map(({ id }) => id);
  return { path: "contract/rule-ids.json", text: `${JSON.stringify(ids, null, 2)}\n` };
}
