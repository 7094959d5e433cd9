import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { stringify } from "yaml";
import { z } from "zod";
import { type ChartValues, chartValues } from "../../constructs/chart-values.ts";
import { chartValuesForKind } from "../../constructs/chart-values-for.ts";
import {
  deployedModelConfig,
  type TunableModel,
} from "../../inference-image/src/contract/deployed-model-config.ts";
import { embedPaths } from "../../inference-image/src/contract/embed-api.ts";
import {
  engineCacheMount,
  modelVariants,
} from "../../inference-image/src/contract/model-config.ts";
import {
  openclipVitB32,
  openclipVitB32Trt,
} from "../../inference-image/src/contract/model-signature.ts";
import { oipPaths } from "../../inference-image/src/contract/oip-paths.ts";
import {
  livenessProbe,
  minReadySeconds,
  podTmpMiB,
  podUser,
  readinessProbe,
  revisionHistoryLimit,
  startupProbe,
  stopMarginSeconds,
  surge,
} from "../../inference-image/src/contract/pods.ts";
import { embedPort, tritonPorts } from "../../inference-image/src/contract/ports.ts";
import { modelRepositoryMount } from "../../inference-image/src/contract/server-env.ts";
import { renderTritonCommand } from "../../inference-image/src/contract/triton-flags.ts";
import { parseSettings } from "../settings.ts";
import type { RenderedFile } from "./render.ts";

const chart = "helm/clipstack";
const source = "constructs/chart-values.ts";

/** The chart's values, their schema and their table, values files, and the facts that its templates share with the server. */
export function chartFiles(): readonly RenderedFile[] {
  return [
    { path: `${chart}/values.yaml`, text: valuesText() },
    { path: `${chart}/values.schema.json`, text: `${JSON.stringify(schema, null, 2)}\n` },
    { path: `${chart}/templates/_contract.tpl`, text: contractText() },
    ...modelConfigFiles(),
    ...valuesFiles(),
  ];
}

/** What this needs of a JSON Schema. */
interface Schema {
  readonly type?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly (string | number)[];
  readonly properties?: Readonly<Record<string, Schema>>;
}

// draft 7: what every Helm 3 reads
const schema = {
  title: "Values of the chart clipstack",
  ...z.toJSONSchema(chartValues, { io: "input", target: "draft-7" }),
} as Schema;

const width = 116;

/** `values.yaml`: every value with its default, what has none as a comment. */
function valuesText(): string {
  return [
    `# Rendered by 'npm run render' from ${source}. Do not edit: give values of your own with --values.`,
    "",
    ...valueLines(schema, 0),
    "",
  ].join("\n");
}

function valueLines({ properties = {} }: Schema, depth: number): readonly string[] {
  const indent = "  ".repeat(depth);
  return Object.entries(properties)
    .filter(([key]) => key !== "global")
    .flatMap(([key, property], index) => {
      const comment = [property.description, choicesOf(property)].filter(Boolean).join(" ");
      const lines = wrapped(comment, width - indent.length - 2).map((line) => `${indent}# ${line}`);
      const gap = depth === 0 && index > 0 ? [""] : [];
      if (property.properties !== undefined) {
        return [...gap, ...lines, `${indent}${key}:`, ...valueLines(property, depth + 1)];
      }
      if (property.default === undefined) return [...gap, ...lines, `${indent}# ${key}:`];
      return [...gap, ...lines, `${indent}${key}: ${flow(property.default)}`];
    });
}

/** The words of a choice that its description does not explain. */
function choicesOf({ enum: words = [], description = "" }: Schema): string {
  const unexplained = words.some((it) => it !== "" && !description.includes(`\`${it}\``));
  return unexplained ? `One of ${words.filter((it) => it !== "").join(", ")}.` : "";
}

/** A value on one line, as YAML. */
function flow(value: unknown): string {
  return stringify(value, {
    collectionStyle: "flow",
    defaultStringType: "PLAIN",
    lineWidth: 0,
  }).trimEnd();
}

function wrapped(text: string, columns: number): readonly string[] {
  const lines: string[] = [];
  for (const word of text.split(" ").filter((it) => it !== "")) {
    const last = lines.at(-1);
    if (last !== undefined && last.length + 1 + word.length <= columns) {
      lines[lines.length - 1] = `${last} ${word}`;
    } else lines.push(word);
  }
  return lines;
}

/** Stands in the engine cache's prefix of a rendered configuration: a template puts there what engines depend on. */
const enginesMark = "CHART-ENGINES";

const modelOf = {
  onnx: openclipVitB32.name,
  tensorrt: openclipVitB32Trt.name,
} as const satisfies Readonly<Record<string, TunableModel>>;

/** Facts that the templates share with the server, as JSON in a named template. */
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
    stopMarginSeconds,
    minReadySeconds,
    revisionHistoryLimit,
    surge,
    user: podUser,
    tmpMiB: podTmpMiB,
    repository: modelRepositoryMount,
    engineCache: engineCacheMount,
    enginesMark,
    models: modelOf,
    variants: { "0": "cpu", "1": "single-gpu", "4": "multi-gpu-4x" },
    weightsFolder: `${openclipVitB32.name}/1`,
    weightsFile: "model.onnx",
    tritonCommand: renderTritonCommand({
      "model-repository": modelRepositoryMount,
      // a request of 32 images as JSON text is about 95 MB; Triton's default of 64 MiB would refuse it
      "http-max-input-size": 128 * 1024 * 1024,
      "strict-readiness": true,
      "exit-on-error": true,
      "disable-auto-complete-config": true,
    }),
  };
  return [
    "{{- /* Rendered by 'npm run render' from inference-image/src/contract. Do not edit. */ -}}",
    '{{- define "clipstack.contract" -}}',
    JSON.stringify(facts, null, 2),
    "{{- end -}}",
    "",
  ].join("\n");
}

/** `model-configs/<model>/<variant>.pbtxt`: Triton's configuration where the values give none. */
function modelConfigFiles(): readonly RenderedFile[] {
  return Object.values(modelOf).flatMap((model) =>
    modelVariants.map((variant) => {
      const compiles = model === openclipVitB32Trt.name && variant !== "cpu";
      const { text, problems } = deployedModelConfig(model, variant, {
        ...(compiles && { engineCachePrefix: enginesMark }),
      });
      if (problems.length > 0) throw new Error(problems.join("; "));
      return { path: `${chart}/model-configs/${model}/${variant}.pbtxt`, text };
    }),
  );
}

interface ValuesFile {
  readonly name: string;
  /** What it is for, lines of a comment. */
  readonly about: readonly string[];
  readonly values: ChartValues;
}

function valuesFiles(): readonly RenderedFile[] {
  return [kindFile()].map(({ name, about, values }) => {
    chartValues.parse(values);
    const heading = [`Rendered by 'npm run render'. Do not edit.`, ...about];
    return {
      path: `${chart}/${name}`,
      text: `${heading.map((line) => `# ${line}`).join("\n")}\n\n${stringify(values, { lineWidth: 0 })}`,
    };
  });
}

function kindFile(): ValuesFile {
  const file = "stacks/kind-local.settings.yaml";
  const path = fileURLToPath(new URL(`../../${file}`, import.meta.url));
  const { embed, autoscaler, budget, quota, limitRange } = parseSettings(
    "kind-local",
    file,
    readFileSync(path, "utf8"),
  );
  return {
    name: "values-kind.yaml",
    about: [
      `The settings of kind-local (${file}) as values: the embed server on a kind cluster, on CPU.`,
    ],
    values: chartValuesForKind({ ...embed, autoscaler, budget, quota, limitRange }),
  };
}
