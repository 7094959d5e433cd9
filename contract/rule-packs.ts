/** Packs of review rules: any plan, Docker hosts, clusters, inference servers. */
export const rulePacks = ["core", "docker", "kubernetes", "triton"] as const;
export type RulePack = (typeof rulePacks)[number];
