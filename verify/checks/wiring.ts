import { existsSync } from "node:fs";
import { join } from "node:path";
import type { Artefact } from "../../artefact/artefact.ts";
import type { SimulationPlan } from "../../artefact/simulation-types.ts";
import type { CheckResult } from "../../bench/record/record.ts";
import { readModelConfig } from "../../client/triton/model-config.ts";
import type { Environment, Service } from "../../contract/environment.ts";
import { checkModelConfig } from "../../contract/model-config-check.ts";
import { catalogueSpecs } from "../../contract/models/index.ts";
import { parseTritonArgs } from "../../contract/triton-flags.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { reason } from "../../target/requests/http-client.ts";
import { servedTowers, type TargetService } from "../../target/service/target-service.ts";
import type { Check } from "./check.ts";
import { resultOf } from "./check-result.ts";

export const wiringCheck: Check = {
  name: "wiring",
  question: "Do ports, names, probes and endpoints of the synthesized file fit together?",
  runEnvironment: ({ deployment }) =>
    deployment === undefined
      ? []
      : unknownServices(deployment.artefact, deployment.environment.deployed),
  runService(service, { plan, deployment }) {
    if (deployment === undefined) return checkWiring(service, plan);
    const { name } = service.workload.service;
    if (deployment.environment.atAddresses) return checkWiring(service, plan);
    const deployed = deployment.environment.deployed.services.find((it) => it.name === name);
    return [...checkDeployedService(service, deployed), ...checkWiring(service, plan)];
  },
};

/** Reports each fault of the plan and of the model configurations, or the published ports if there is none. */
export function checkWiring(service: TargetService, plan: SimulationPlan): readonly CheckResult[] {
  const { workload } = service;
  const faults = [
    ...plan.faults.filter((fault) => fault.workload === workload).map(({ message }) => message),
    ...missingConfigurations(service),
    ...wrongConfigurations(service),
  ];
  if (faults.length > 0) {
    return faults.map((message) => resultOf(service, "wiring", "fail", message));
  }
  const ports = workload.published.map(({ external, internal }) => `${external} → ${internal}`);
  return [
    resultOf(
      service,
      "wiring",
      "pass",
      ports.length === 0 ? "publishes no port" : `publishes ${ports.join(", ")}`,
    ),
  ];
}

/** Lists configurations that the model repository lacks. Triton would use `config.pbtxt` instead, without a message. */
function missingConfigurations(service: TargetService): readonly string[] {
  const missing = service.instances.flatMap(({ instance }) => {
    if (instance.role !== "triton") return [];
    const flags = parseTritonArgs(instance.args.slice(1));
    const configName = flags["model-config-name"];
    if (configName === undefined) return [];
    const file = join("configs", `${configName}.pbtxt`);
    return servedTowers(service).flatMap(({ model: name }) => {
      const model = join(flags["model-repository"], name);
      if (!existsSync(model) || existsSync(join(model, file))) return [];
      return [`--model-config-name=${configName}: ${name} has no ${file}`];
    });
  });
  return [...new Set(missing)];
}

/** Lists errors in the model configurations of the artefact. Triton accepts some of them without a message. */
function wrongConfigurations(service: TargetService): readonly string[] {
  const models = [...servedTowers(service).map(({ model }) => model), ...daliNames(service)];
  const texts = service.workload.volumes.flatMap(({ contents }) =>
    Object.entries(contents?.files ?? {}),
  );
  return texts.flatMap(([name, text]) => {
    if (!name.endsWith(".pbtxt")) return [];
    try {
      const config = readModelConfig(text, name);
      const other = models.includes(config.name)
        ? []
        : [`name must be ${models.join(" or ")}, got ${config.name}`];
      return [...other, ...checkModelConfig(config, { specs: catalogueSpecs })].map(
        (problem) => `${name}: ${problem}`,
      );
    } catch (error) {
      return [reason(error)];
    }
  });
}

/** Models with which a Triton server decodes JPEG files. */
function daliNames({ models, workload }: TargetService): readonly string[] {
  const { jpegKind } = workload.service;
  if (jpegKind === undefined || workload.service.kind !== "triton") return [];
  const kinds = ["dali-preprocess", jpegKind] as const;
  return models.flatMap((spec) => kinds.map((modelKind) => tritonModelName(spec, modelKind)));
}

/** Compares a deployed service with the synthesized file, because other settings may have been deployed. */
export function checkDeployedService(
  service: TargetService,
  deployed: Service | undefined,
): readonly CheckResult[] {
  const declared = service.workload.service;
  if (deployed === undefined) {
    const message = "must be deployed, because it is in the synthesized file";
    return [resultOf(service, "wiring", "fail", message)];
  }
  const keys = ["kind", "backend", "server", "modelKind", "jpegKind", "authorization"] as const;
  const changed = [
    ...keys.map((key) => [key, declared[key] ?? "none", deployed[key] ?? "none"] as const),
    ["models", declared.models.join(", "), deployed.models.join(", ")] as const,
    ["endpoints", endpointsText(declared), endpointsText(deployed)] as const,
  ].filter(([, here, there]) => here !== there);
  return changed.map(([key, here, there]) =>
    resultOf(
      service,
      "wiring",
      "fail",
      `${key} must be ${here} as in the synthesized file, got ${there}`,
    ),
  );
}

function endpointsText({ endpoints }: Service): string {
  return endpoints.map(({ protocol, url }) => `${protocol} ${url}`).join(", ");
}

function unknownServices(artefact: Artefact, deployed: Environment): readonly CheckResult[] {
  return deployed.services
    .filter(({ name }) => artefact.environment.services.every((it) => it.name !== name))
    .map(({ name, resources }) => ({
      id: "wiring",
      environment: artefact.environment.name,
      service: name,
      resource: resources.container ?? resources.deployment ?? resources.release ?? name,
      outcome: "fail" as const,
      message: "is deployed, but not in the synthesized file",
      measured: {},
    }));
}
