import { readFileSync } from "node:fs";
import { stringify } from "yaml";
import { z } from "zod";
import { chartValues } from "../constructs/kubernetes/chart-values.ts";
import { tritonStartSeconds } from "../constructs/models/triton-times.ts";
import {
  deployedModelConfig,
  type TunableKind,
  tunableKinds,
} from "../contract/deployed-model-config.ts";
import { embedPaths } from "../contract/embed-api.ts";
import { fingerprintParameters, preprocessingSha256 } from "../contract/fingerprint.ts";
import { deployedConfigName, engineCacheMount, tensorrtFile } from "../contract/model-config.ts";
import type { ModelSpec } from "../contract/model-spec.ts";
import { catalogueSpecs, defaultModel } from "../contract/models/index.ts";
import { oipPaths } from "../contract/oip-paths.ts";
import {
  gpuScaling,
  livenessProbe,
  minReadySeconds,
  podTmpMiB,
  podUser,
  readinessProbe,
  revisionHistoryLimit,
  startSeconds,
  startupProbe,
  stopMarginSeconds,
  surge,
  templateHashLabel,
  tritonTmpMiB,
} from "../contract/pods.ts";
import { embedPort, tritonPorts } from "../contract/ports.ts";
import { printFields } from "../contract/print-model-config.ts";
import { modelsFile } from "../contract/server/model-list.ts";
import { modelRepositoryMount, type ServerEnvName } from "../contract/server/server-env.ts";
import { ownedVariables } from "../contract/server/server-settings.ts";
import { renderTritonCommand, restrictControl, tracingFlags } from "../contract/triton-flags.ts";
import { kindsOf, type ModelKind, tritonModelName } from "../contract/triton-models.ts";
import { firstStronglyTyped } from "../contract/triton-releases.ts";
import { queueTime, scalingQueries } from "../monitoring/expressions.ts";
import { schemaYaml } from "../stacks/settings/schema-yaml.ts";
import { type JsonSchema, schemaTable } from "../stacks/settings/settings-docs.ts";
import { valuesFiles } from "./render-chart-values.ts";
import type { RenderedFile } from "./rendered-file.ts";

const chart = "helm/clipstack";
const source = "constructs/kubernetes/chart-values.ts";

/** Files of the chart: values with their schema and table, values files, and facts that templates share with the server. */
export function chartFiles(): readonly RenderedFile[] {
  return [
    { path: `${chart}/values.yaml`, text: valuesText() },
    { path: `${chart}/values.schema.json`, text: schemaText() },
    { path: `${chart}/README.md`, text: readmeText() },
    { path: `${chart}/files/contract.json`, text: contractText() },
    { path: `${chart}/prometheus/adapter-rules.yaml`, text: adapterRules() },
    ...modelConfigFiles(),
    ...valuesFiles(chart),
  ];
}

// draft 7: supported by every Helm 3
const schema = {
  title: "Values of the chart clipstack",
  ...z.toJSONSchema(chartValues, { io: "input", target: "draft-7" }),
} as JsonSchema;

/** `values.schema.json`: also accepts null in place of every value. */
function schemaText(): string {
  const accepting = structuredClone(schema) as MutableSchema;
  acceptNull(accepting);
  return `${JSON.stringify(accepting, null, 2)}\n`;
}

interface MutableSchema {
  readonly description?: string;
  type?: string | string[];
  enum?: unknown[];
  anyOf?: object[];
  readonly default?: unknown;
  readonly properties?: { [name: string]: MutableSchema };
}

/** Values of the chart by dotted path, without those that contain others. */
function leavesOf({ properties = {} }: MutableSchema, path = ""): [string, MutableSchema][] {
  return Object.entries(properties).flatMap(([key, value]) =>
    value.properties === undefined
      ? [[`${path}${key}`, value] as [string, MutableSchema]]
      : leavesOf(value, `${path}${key}.`),
  );
}

/** Accepts null in place of every value, which templates replace by the default. */
function acceptNull({ properties = {} }: MutableSchema): void {
  for (const value of Object.values(properties)) {
    if (value.type !== undefined) value.type = [value.type, "null"].flat();
    value.enum?.push(null);
    value.anyOf?.push({ type: "null" });
    acceptNull(value);
  }
}

/** Marker lines around the rendered table of the README. */
const table = {
  begin:
    "<!-- The table is rendered by `npm run render` from constructs/kubernetes/chart-values.ts. -->",
  end: "<!-- End of the table. -->",
} as const;

function readmeText(): string {
  return withTable(readFileSync(new URL(`../${chart}/README.md`, import.meta.url), "utf8"));
}

/** README with the current table. @throws {Error} if the marker lines are missing. */
export function withTable(readme: string): string {
  const [before, rest] = readme.split(`${table.begin}\n`);
  const after = rest?.split(`${table.end}\n`)[1];
  if (after === undefined) {
    throw new Error(`${chart}/README.md: must have the two marker lines around its table`);
  }
  const rows = schemaTable("name", ownValues());
  return [`${before}${table.begin}`, "", ...rows, "", `${table.end}\n${after}`].join("\n");
}

/** Values without `global`, which Helm passes to every chart. */
function ownValues(): JsonSchema {
  const { global, ...properties } = schema.properties ?? {};
  return { ...schema, properties };
}

/** `values.yaml`: every value with its default; a value without one is a comment. */
function valuesText(): string {
  return [
    `# Rendered by 'npm run render' from ${source}. Do not edit: override values with --values.`,
    "",
    ...schemaYaml(ownValues()),
    "",
  ].join("\n");
}

/** Line of a model configuration that a template replaces with the instance group; the lines below it are for GPUs. */
const instancesMark = "# CHART-INSTANCES";

/** Placeholder for the engine cache's prefix, which a template replaces with the hash of everything that engines depend on. */
const enginesMark = "CHART-ENGINES";

/** Variables of the embed server that have chart values of their own. */
const ownEnv: readonly ServerEnvName[] = [
  ...(Object.keys(ownedVariables) as ServerEnvName[]).filter(
    // certificates and metadata of Triton servers are mounted by the user; `tracing` sets OpenTelemetry's only with an endpoint
    (name) => !/^(TRITON_TLS_|TRITON_METADATA_|OTEL_)/.test(name),
  ),
  "INTRA_OP_THREADS",
  "SHUTDOWN_GRACE_SECONDS",
];

/** Returns the name of a catalogue model, and the properties that the chart's templates need. */
function catalogueEntry({ name, towers, embedding }: ModelSpec) {
  const { kind, file } = towers.text?.input.tokenizer ?? {};
  return [
    name,
    {
      width: embedding.width,
      modalities: Object.keys(towers),
      preprocessing: Object.fromEntries(
        (["image", "text"] as const)
          .filter((modality) => towers[modality] !== undefined)
          .map((modality) => [modality, preprocessingSha256({ name, towers }, modality)]),
      ),
      tokenizer: kind === "sentencepiece" ? file : "",
    },
  ] as const;
}

/** End of the names in Triton of a model kind's models. */
function suffixOf(modelKind: TunableKind): string {
  return tritonModelName({ name: "" }, modelKind);
}

/** Facts that templates share with the server. */
function contractText(): string {
  const facts = {
    ports: {
      embed: embedPort,
      tritonHttp: tritonPorts.http,
      tritonGrpc: tritonPorts.grpc,
      tritonMetrics: tritonPorts.metrics,
    },
    paths: { ...embedPaths, tritonReady: oipPaths.ready, tritonLive: oipPaths.live },
    probes: { startup: startupProbe, readiness: readinessProbe, liveness: livenessProbe },
    startSeconds: {
      embed: startSeconds,
      triton: tritonStartSeconds(false, 1),
      tritonEngine: tritonStartSeconds(true, 1) - tritonStartSeconds(true, 0),
    },
    stopMarginSeconds,
    minReadySeconds,
    revisionHistoryLimit,
    surge,
    gpuScaling,
    templateHashLabel,
    user: podUser,
    tmpMiB: podTmpMiB,
    tritonTmpMiB,
    repository: modelRepositoryMount,
    modelsFile,
    engineCache: engineCacheMount,
    instancesMark,
    enginesMark,
    modelConfigName: deployedConfigName,
    tensorrtFile,
    fingerprintParameters,
    stronglyTyped: firstStronglyTyped,
    catalogue: Object.fromEntries(catalogueSpecs.map(catalogueEntry)),
    defaultModel: defaultModel.name,
    defaults: Object.fromEntries(
      leavesOf(ownValues() as MutableSchema).map(([path, value]) => [path, value.default ?? null]),
    ),
    suffixes: Object.fromEntries(tunableKinds.map((modelKind) => [modelKind, suffixOf(modelKind)])),
    queueTime,
    scalingQueries,
    ownEnv,
    // NVIDIA's image contains no model
    tritonRepository: chartValues.parse({}).triton.image.repository,
    tritonCommand: renderTritonCommand({
      "model-repository": modelRepositoryMount,
      // a request of 32 images as JSON text is about 95 MB; Triton's default of 64 MiB would reject it
      "http-max-input-size": 128 * 1024 * 1024,
      "strict-readiness": true,
      "exit-on-error": true,
      "disable-auto-complete-config": true,
    }),
    tracingArguments: renderTritonCommand({
      "model-repository": "",
      ...tracingFlags("ENDPOINT", "SERVICE"),
    }).slice(2),
    controlRestrictions: {
      restricted: restrictionArguments("closed"),
      open: restrictionArguments("open"),
    },
  };
  return `${JSON.stringify(facts, null, 2)}
`;
}

function restrictionArguments(modelControl: "closed" | "open"): readonly string[] {
  return Object.entries(restrictControl(modelControl)).flatMap(([flag, values]) =>
    values.map((value) => `--${flag}=${value}`),
  );
}

/** Rules for the Prometheus adapter, which provides the queue time as a pod metric and fills in `<<…>>`. */
function adapterRules(): string {
  const rule = {
    seriesQuery: 'nv_inference_queue_duration_us{namespace!="",pod!=""}',
    resources: {
      overrides: { namespace: { resource: "namespace" }, pod: { resource: "pod" } },
    },
    name: { as: queueTime.adapterMetric },
    metricsQuery: queueTime.expression
      .replaceAll("BY", "<<.GroupBy>>")
      .replaceAll("SELECTOR", "<<.LabelMatchers>>")
      .replaceAll("WINDOW", "1m"),
  };
  return [
    "# Rendered by 'npm run render'. Do not edit.",
    "# Values of the chart prometheus-adapter, for triton.autoscaling.source prometheus-adapter. If the scrape interval is",
    "# longer than 15 seconds, replace 1m with four times the interval.",
    "",
    stringify({ rules: { custom: [rule] } }, { lineWidth: 0 }),
  ].join("\n");
}

/** `model-configs/<name in Triton>.pbtxt`: model configurations of the chart without instances, for all models of the catalogue. */
function modelConfigFiles(): readonly RenderedFile[] {
  return catalogueSpecs.flatMap((spec) =>
    kindsOf(spec)
      .filter(isTunable)
      .map((modelKind) => modelConfigFile(spec, modelKind)),
  );
}

function modelConfigFile(spec: ModelSpec, modelKind: TunableKind): RenderedFile {
  const compiles = modelKind === "trt" || modelKind === "text-trt";
  const { config, problems } = deployedModelConfig(
    { spec, modelKind },
    1,
    {},
    {
      ...(compiles && { engineCachePrefix: enginesMark }),
    },
  );
  if (problems.length > 0) throw new Error(problems.join("; "));
  const { instance_group, default_model_filename, optimization, model_warmup, ...common } = config;
  return {
    path: `${chart}/model-configs/${config.name}.pbtxt`,
    text: [
      "# Rendered by 'npm run render' from contract. Do not edit.",
      "",
      `${printFields(common)}${instancesMark}`,
      printFields({ default_model_filename, optimization, model_warmup }),
    ].join("\n"),
  };
}

function isTunable(modelKind: ModelKind): modelKind is TunableKind {
  return tunableKinds.some((tunable) => tunable === modelKind);
}
