import type { RulePack } from "../../contract/rule-packs.ts";
import type { Severity } from "../input/change.ts";
import { changeRules } from "./changes.ts";
import { cloudRules } from "./cloud.ts";
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
export interface RuleSection {
  readonly title: string;
  readonly rules: readonly ReviewRule[];
  /** Packs of its rules, unless {@link otherPacks} lists a rule. */
  readonly packs: readonly RulePack[];
}

export const ruleSections: readonly RuleSection[] = [
  { title: "Images", rules: imageRules, packs: ["docker", "kubernetes"] },
  { title: "Exposure", rules: exposureRules, packs: ["docker", "kubernetes"] },
  { title: "Containers and pods", rules: containerRules, packs: ["docker", "kubernetes"] },
  { title: "Secrets", rules: secretRules, packs: ["core"] },
  { title: "Triton", rules: tritonRules, packs: ["triton"] },
  { title: "Models and engines", rules: modelRules, packs: ["triton"] },
  { title: "GPUs", rules: gpuRules, packs: ["triton"] },
  { title: "Health, start and stop", rules: healthRules, packs: ["kubernetes"] },
  { title: "Kubernetes", rules: kubernetesRules, packs: ["kubernetes"] },
  { title: "Cloud resources", rules: cloudRules, packs: ["core"] },
  { title: "State and providers", rules: stateRules, packs: ["core"] },
  { title: "The change itself", rules: changeRules, packs: ["core"] },
];

/** Rules that belong to other packs than their section, by packs separated by spaces. */
export const otherPacks: Readonly<Record<string, string>> = {
  docker:
    "image-kept docker-endpoint-plain port-conflict container-restart container-log-limit gpu-request-agrees gpu-identifiers-mixed health-check health-check-readiness start-period",
  kubernetes: "image-local-never-pulled node-port-mapped namespace-lost",
  "docker kubernetes": "stop-time",
  triton:
    "image-gpu-architecture triton-exposed model-control-exposed metrics-exposed embed-anonymous autoscaler-metric-source cluster-lost environment-lost environment-described endpoint-changed cost-rise",
};

/** Packs of each rule, by id. */
export const packsOfRules: ReadonlyMap<string, readonly RulePack[]> = new Map([
  ...ruleSections.flatMap(({ rules, packs }) => rules.map(({ id }) => [id, packs] as const)),
  ...Object.entries(otherPacks).flatMap(([packs, ids]) =>
    ids.split(" ").map((id) => [id, packs.split(" ") as RulePack[]] as const),
  ),
]);

export const rules: readonly ReviewRule[] = ruleSections.flatMap(({ rules }) => rules);

/** Rules that the settings of a review select. */
export interface RuleSelection {
  readonly packs: readonly RulePack[];
  /** Turns single rules on or off, or sets their severity. */
  readonly rules: Readonly<Record<string, "on" | "off" | Severity | undefined>>;
}

/** Selects rules; own rules, which are in no pack, are on by default. */
export function selectedRules(
  all: readonly ReviewRule[],
  { packs, rules: levels }: RuleSelection,
): readonly ReviewRule[] {
  return all.flatMap((rule) => {
    const level = levels[rule.id];
    const inPack = packsOfRules.get(rule.id)?.some((pack) => packs.includes(pack)) ?? true;
    if (level === "off" || (level === undefined && !inPack)) return [];
    return level === undefined || level === "on" ? [rule] : [{ ...rule, severity: level }];
  });
}

/** `contract/rule-ids.json`: rule ids as data, because settings accept them in waivers but must not load the rules. */
export function ruleIdFile(): { readonly path: string; readonly text: string } {
  const ids = rules.map(({ id }) => id);
  return { path: "contract/rule-ids.json", text: `${JSON.stringify(ids, null, 2)}\n` };
}
