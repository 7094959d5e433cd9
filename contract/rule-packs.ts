/** Packs of review rules: any plan, Docker hosts, clusters, inference servers. */
export const rulePacks = ["core", "docker", "kubernetes", "triton"] as const;
export type RulePack = (typeof rulePacks)[number];

/** Id of a rule that a module of a user defines, never that of a built-in rule. */
export const ownRuleId = /^own-[a-z0-9]+(-[a-z0-9]+)*$/;
