import type { Artefact } from "../../artefact/artefact.ts";
import type { ClusterInspection } from "../../artefact/cluster-objects.ts";
import type { Inspection } from "../../artefact/docker-inspect.ts";
import type { SimulationPlan } from "../../artefact/simulation-types.ts";
import type { CheckResult, Measurement, VerifyTarget } from "../../bench/record/record.ts";
import type { ServiceKind } from "../../contract/environment.ts";
import type { ModelTower } from "../../contract/model-spec.ts";
import {
  cycle,
  type ReferenceItem,
  type ReferenceModel,
} from "../../target/reference/reference.ts";
import type { Samples } from "../../target/reference/references.ts";
import type { DeployedEnvironment } from "../../target/service/deployed-environment.ts";
import type { TargetService } from "../../target/service/target-service.ts";
import type { DeclaredBlock } from "./declared-blocks.ts";

/** Check of an environment. To add one: a file, a line in `registry.ts`, a row in `docs/checks.md` with its conditions, and a test. */
export interface Check {
  /** Name in records, reports and messages. */
  readonly name: string;
  /** Question that the check answers. */
  readonly question: string;
  /** The only target on which the check runs. @default - both */
  readonly only?: VerifyTarget;
  /** Reason of the skipped results on the other target. @default - no results */
  readonly skipReason?: string;
  /** Whether the check sends requests. Services that did not start are skipped. @default false */
  readonly sendsRequests?: boolean;
  /** Kinds of services that are checked. @default - all */
  readonly kinds?: readonly ServiceKind[];
  /** Order of the services. @default - order of the environment */
  order?(services: readonly TargetService[]): readonly TargetService[];
  /** Checks the environment as a whole, before its services. */
  runEnvironment?(context: CheckContext): readonly CheckResult[];
  /** Checks one service; a thrown error is a failed result. */
  runService?(
    service: TargetService,
    context: CheckContext,
  ): readonly CheckResult[] | Promise<readonly CheckResult[]>;
}

/** Environment under test. */
export interface CheckContext extends Samples {
  readonly environment: string;
  readonly target: VerifyTarget;
  readonly services: readonly TargetService[];
  /** Plan of the simulation; for a deployed environment only its faults are used. */
  readonly plan: SimulationPlan;
  /** Absent in a simulation. */
  readonly deployment?: DeploymentUnderTest;
  /** Names of the services that did not start; the check `start` adds them. */
  readonly unavailable: Set<string>;
  /** Length of the load on each endpoint, in seconds. */
  readonly loadSeconds: number;
  readonly signal: AbortSignal;
  readonly onMeasurement: (measurement: Measurement) => void;
}

/** `count` images, or texts for a text tower, repeated as needed. */
export function itemsOf(
  { reference, textReference }: Samples,
  { spec, modality }: ModelTower,
  count: number,
): readonly ReferenceItem[] {
  return cycle<ReferenceItem>(modality === "text" ? textReference : reference, spec, count);
}

/** Deployed environment and its inspected containers and objects. */
export interface DeploymentUnderTest {
  readonly environment: DeployedEnvironment;
  readonly artefact: Artefact;
  readonly blocks: readonly DeclaredBlock[];
  readonly inspection: Inspection;
  /** Absent without Kubernetes objects. */
  readonly cluster?: ClusterInspection;
  /** Folder of `cdk.tf.json`. */
  readonly moduleFolder: string;
  /** Files of the image towers on this machine. */
  readonly models: readonly ReferenceModel[];
}

/** clipstack's own servers: a baseline implements the routes that return embeddings, and no more of the embed API. */
export const ownKinds: readonly ServiceKind[] = ["embed", "triton"];
