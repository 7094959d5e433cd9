/** For tests: the saved plans, and what each is of. */
export interface PlanCase {
  /** `plans/<name>.plan.json` */
  readonly name: string;
  /** Whether the environment is deployed, with the settings that nothing is changed in. */
  readonly deployed: boolean;
  readonly settings: {
    readonly queueDelay?: number;
    readonly trtImage?: "other";
    readonly expose?: "all-interfaces";
    readonly gpu?: "a10";
  };
  readonly destroy?: true;
}

export const planCases: readonly PlanCase[] = [
  { name: "create", deployed: false, settings: {} },
  { name: "nothing-changed", deployed: true, settings: {} },
  { name: "queue-delay-changed", deployed: true, settings: { queueDelay: 2_000 } },
  { name: "image-changed", deployed: true, settings: { trtImage: "other" } },
  { name: "port-exposed", deployed: true, settings: { expose: "all-interfaces" } },
  { name: "gpu-swapped", deployed: true, settings: { gpu: "a10" } },
  { name: "stack-destroyed", deployed: true, settings: {}, destroy: true },
];

/** The key that Terraform is given where a port is exposed. A saved plan has it in plain text, as every plan does. */
export const plantedKey = "planted-secret-8c1f02d7";
