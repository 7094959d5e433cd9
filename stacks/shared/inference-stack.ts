import type { Construct } from "constructs";
import type { ReportedConflict } from "../../constructs/checks/ports.ts";
import type { EnvironmentOutput } from "../../constructs/stack/environment-output.ts";
import { keepState, type StateBackend } from "../../constructs/stack/state.ts";
import { TerraformStack } from "../../constructs/terraform/cdktf.ts";

/** Stack of an environment, with what a synthesis prints about it. */
export abstract class InferenceStack extends TerraformStack {
  /** Endpoints of the services; undefined if all are disabled, which is a finding. */
  protected environment: EnvironmentOutput | undefined;
  /** Lines that a synthesis prints: the commands that build the images. */
  readonly notes: readonly string[] = [];
  /** Host or cluster on which the services publish ports; undefined for an existing cluster. */
  protected host: { readonly portConflicts: readonly ReportedConflict[] } | undefined;

  constructor(scope: Construct, id: string, state: StateBackend) {
    super(scope, id);
    keepState(this, state);
  }

  /** Ports that two services publish. */
  get portConflicts(): readonly ReportedConflict[] {
    return this.host?.portConflicts ?? [];
  }

  /** `multi-gpu-4x: triton-onnx (4 execution instances), embed; 4 rtx-4080 of 16376 MiB, 8 $/hour (2026-11)` */
  get summary(): string {
    const services = this.node.children
      .filter((construct) => construct !== this.environment)
      .flatMap((construct) => ("summary" in construct ? [construct.summary] : []));
    const gpus = this.environment?.summary ?? "";
    return `${this.node.id}: ${[services.join(", "), ...(gpus === "" ? [] : [gpus])].join("; ")}`;
  }
}
