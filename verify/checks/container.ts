import { posix } from "node:path";
import type { Artefact } from "../../artefact/artefact.ts";
import type { ContainerBlock } from "../../artefact/container-workload.ts";
import type { DeployedState, Inspection } from "../../artefact/docker-inspect.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import type { ReferenceModel } from "../../bench/run/reference.ts";
import {
  endpointsOf,
  resultOf,
  type ServiceUnderTest,
} from "../../bench/run/service-under-test.ts";
import type { Service } from "../../contract/environment.ts";
import { modelRepositoryMount } from "../../contract/server-env.ts";
import { aspectsOf, differences } from "./container-aspects.ts";

/** One container of the file, and what it is for. */
export interface DeclaredBlock extends ContainerBlock {
  /** Absent for a container that is no service: it runs once and ends. */
  readonly service?: Service;
}

export function declaredBlocks(artefact: Artefact, state: DeployedState): readonly DeclaredBlock[] {
  return artefact.containers.map((block) => {
    const { address, declared } = block;
    const name = declared.name.includes("${") ? state.names.get(address) : undefined;
    return {
      ...block,
      declared: { ...declared, name: name ?? declared.name },
      service: artefact.workloads.find((workload) => workload.address === address)?.service,
    };
  });
}

type Draft = Pick<CheckResult, "id" | "outcome" | "message"> & Partial<CheckResult>;

function result(environment: string, { address, declared, service }: DeclaredBlock, draft: Draft) {
  return {
    environment,
    service: service?.name ?? declared.name,
    resource: `${address} (container '${declared.name}')`,
    measured: {},
    ...draft,
  } satisfies CheckResult;
}

/** What is deployed against what lies in the file: an environment can be deployed from other settings. */
export function checkDeployedService(
  service: ServiceUnderTest,
  deployed: Service | undefined,
): readonly CheckResult[] {
  const declared = service.workload.service;
  if (deployed === undefined) {
    const message = "is in the synthesized file, but not in what is deployed";
    return [resultOf(service, "wiring", "fail", message)];
  }
  const keys = ["kind", "backend", "server", "model", "authorization"] as const;
  const changed = [
    ...keys.map((key) => [key, declared[key] ?? "none", deployed[key] ?? "none"] as const),
    ["endpoints", endpointsText(declared), endpointsText(deployed)] as const,
  ].filter(([, here, there]) => here !== there);
  return changed.map(([key, here, there]) =>
    resultOf(
      service,
      "wiring",
      "fail",
      `${key}: ${there} is deployed, but the synthesized file says ${here}`,
    ),
  );
}

function endpointsText({ endpoints }: Service): string {
  return endpoints.map(({ protocol, url }) => `${protocol} ${url}`).join(", ");
}

/** Whether a container runs and is healthy, or, where it is no service, has done its work. */
export function checkContainerState(
  environment: string,
  block: DeclaredBlock,
  inspection: Inspection,
  now = Date.now(),
): CheckResult {
  const report = (outcome: CheckResult["outcome"], message: string, more: Partial<Draft> = {}) =>
    result(environment, block, { id: "start", outcome, message, ...more });
  if (!inspection.ok) return report("skip", inspection.message);
  const { declared } = block;
  const found = inspection.containers.get(declared.name);
  if (found === undefined) return report("fail", `there is no container '${declared.name}'`);
  const { State, RestartCount } = found;
  const ended = `${State.OOMKilled ? "ran out of memory, " : ""}exit code ${State.ExitCode}${State.Error === "" ? "" : `: ${State.Error}`}`;
  if (!declared.must_run) {
    if (State.Status === "running") return report("skip", "still runs");
    return State.ExitCode === 0
      ? report("pass", "has done its work")
      : report("fail", `did not do its work: ${ended}`);
  }
  if (State.Status !== "running") return report("fail", `is ${State.Status}, ${ended}`);
  const health = State.Health?.Status;
  if (declared.healthcheck.length > 0 && health !== "healthy") {
    const said = State.Health?.Log.at(-1)?.Output.trim().split("\n").at(-1) ?? "";
    return report(
      "fail",
      `is ${health ?? "without a health check"}${said === "" ? "" : `: ${said}`}`,
    );
  }
  const upSeconds = Math.max(0, Math.round((now - Date.parse(State.StartedAt)) / 1_000));
  const restarts = RestartCount === 0 ? "" : `, restarted ${RestartCount} times`;
  return report(
    "pass",
    `runs${health === undefined ? "" : " and is healthy"}, for ${upSeconds} s${restarts}`,
    {
      measured: { upSeconds, restarts: RestartCount },
    },
  );
}

/** One result for each thing that is not as declared, or one that says what is. */
export function checkContainer(
  environment: string,
  block: DeclaredBlock,
  inspection: Inspection,
  state: DeployedState,
  moduleFolder: string,
): readonly CheckResult[] {
  const report = (outcome: CheckResult["outcome"], message: string, more: Partial<Draft> = {}) =>
    result(environment, block, { id: "container", outcome, message, ...more });
  const { declared } = block;
  // whoever cannot look cannot say that it is well
  if (!inspection.ok) return [report("fail", inspection.message)];
  const found = inspection.containers.get(declared.name);
  if (found === undefined) return [report("skip", "it is not there")];
  const wrong: string[] = [];
  const id = state.ids.get(block.address);
  if (id !== undefined && id !== found.Id) {
    wrong.push(
      `is container ${short(found.Id)}, but Terraform made ${short(id)}: something else replaced it`,
    );
  }
  const imageId = block.image === undefined ? undefined : state.ids.get(block.image);
  const aspects = aspectsOf(declared, found, { imageId, moduleFolder });
  const different = differences(aspects);
  wrong.push(
    ...different.map(({ name, declared: must, found: is }) => `${name} must be ${must}, is ${is}`),
  );
  const measured = { compared: aspects.length, different: different.length };
  if (wrong.length > 0) return wrong.map((message) => report("fail", message, { measured }));
  return [
    report("pass", `${aspects.length} facts are as declared: ${shown(aspects)}`, { measured }),
  ];
}

/** Name of a volume that ends in the first digits of a checksum which only Terraform knows. */
const namedByChecksum = /^(?<prefix>[^$]*)\$\{substr\([^{}]+, 0, (?<digits>\d+)\)\}$/;

/**
 * Compares the model files of the deployed containers with the reference file, by the checksum in the name of their
 * volume: one result for each deployed file, none for a folder of the host or a file of the image.
 */
export function checkWeights(
  environment: string,
  blocks: readonly DeclaredBlock[],
  inspection: Inspection,
  { file, subject: { sha256 } }: ReferenceModel,
): readonly CheckResult[] {
  if (!inspection.ok || sha256 === undefined) return [];
  const results = new Map<string, CheckResult>();
  for (const block of blocks) {
    const deployed = deployedChecksum(block, inspection);
    if (deployed === undefined || results.has(deployed)) continue;
    const same = sha256.startsWith(deployed);
    const message = same
      ? `the deployed model.onnx is the reference file, sha256 ${deployed}`
      : `the deployed model.onnx is ${deployed}, the reference file is ${sha256.slice(0, deployed.length)} (${file})`;
    const outcome = same ? "pass" : "fail";
    results.set(deployed, result(environment, block, { id: "parity", outcome, message }));
  }
  return [...results.values()];
}

/** First digits of the checksum of the model file that a container mounts, where the name of its volume has them. */
function deployedChecksum(
  { declared, service }: DeclaredBlock,
  inspection: Inspection & { readonly ok: true },
): string | undefined {
  if (service === undefined) return undefined;
  const target = posix.join(modelRepositoryMount, service.model, "1");
  const volume = declared.volumes.find(({ container_path }) => container_path === target);
  const { prefix, digits } = namedByChecksum.exec(volume?.volume_name ?? "")?.groups ?? {};
  if (prefix === undefined) return undefined;
  const mounts = inspection.containers.get(declared.name)?.Mounts ?? [];
  const name = mounts.find(({ Destination }) => Destination === target)?.Name ?? "";
  const checksum = name.slice(prefix.length);
  const isChecksum = checksum.length === Number(digits) && /^[0-9a-f]+$/.test(checksum);
  return name.startsWith(prefix) && isChecksum ? checksum : undefined;
}

/** The facts that a reviewer asks for, with their values. */
const shownAspects = [
  "user",
  "capabilities",
  "root file system",
  "security options",
  "restart policy",
  "GPU request",
  "runtime",
  "NVIDIA_VISIBLE_DEVICES",
  "published ports",
  "memory",
  "shared memory",
] as const;

function shown(aspects: ReturnType<typeof aspectsOf>): string {
  return shownAspects
    .flatMap((name) => aspects.filter((aspect) => aspect.name === name))
    .map(({ name, found }) => `${name} ${found}`)
    .join("; ");
}

function short(id: string): string {
  return id.slice(0, 12);
}

/** What a Triton calls itself, by what it was deployed as. */
const serverNames = { tritonserver: "triton", emulator: "clipstack" } as const;

const timeoutMs = 10_000;

/** A Triton must be the one that the environment says: NVIDIA's, or clipstack's server in its place. */
export async function checkEngine(service: ServiceUnderTest): Promise<readonly CheckResult[]> {
  const { server } = service.workload.service;
  const [target] = endpointsOf(service);
  if (server === undefined || target === undefined) return [];
  const { name, version } = await service.transport(target).serverMetadata({ timeoutMs });
  const right = name === serverNames[server];
  const message = right
    ? `engine ${server}: ${name} ${version}`
    : `engine ${server} is deployed, but what answers is ${name} ${version}`;
  return [resultOf(service, "endpoints", right ? "pass" : "fail", message)];
}
