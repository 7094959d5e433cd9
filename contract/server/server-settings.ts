import { z } from "zod";
import { integer } from "../value-types.ts";
import { type ServerEnv, type ServerEnvName, serverEnv } from "./server-env.ts";

/** Variables that stacks and the chart set themselves, and the settings that determine them. */
export const ownedVariables = {
  HOST: "embed.expose",
  PORT: "embed.port",
  MODELS: "models",
  MODELS_FILE: "models",
  MODEL_REPOSITORY: "modelRepository",
  BACKEND: "embed.backend",
  TRITON_GRPC_URLS: "embed.upstream and embed.upstreams",
  TRITON_MODEL_KIND: "the settings of the Triton servers",
  TRITON_TLS_CA_FILE: "embed.upstreams",
  TRITON_TLS_CERT_FILE: "embed.upstreams",
  TRITON_TLS_KEY_FILE: "embed.upstreams",
  TRITON_TLS_SERVER_NAME: "embed.upstreams",
  TRITON_METADATA_FILE: "a mount beside the stack",
  EXECUTION_PROVIDER: "accelerator",
  API_KEYS_FILE: "embed.keys",
  API_KEY: "embed.expose, or embed.keySecret in a cluster",
  ALLOW_ANONYMOUS: "embed.expose, or embed.keySecret in a cluster",
  TLS_CERT_FILE: "embed.tls",
  TLS_KEY_FILE: "embed.tls",
  OTEL_EXPORTER_OTLP_ENDPOINT: "tracing",
  OTEL_EXPORTER_OTLP_PROTOCOL: "tracing",
  OTEL_SERVICE_NAME: "tracing",
  OTEL_RESOURCE_ATTRIBUTES: "tracing",
  OTEL_TRACES_SAMPLER: "tracing",
  OTEL_TRACES_SAMPLER_ARG: "tracing",
} as const satisfies Partial<Record<ServerEnvName, string>>;

type SettableVariable = Exclude<ServerEnvName, keyof typeof ownedVariables>;

type CamelCase<Name extends string> = Name extends `${infer First}_${infer Rest}`
  ? `${Lowercase<First>}${Capitalize<CamelCase<Rest>>}`
  : Lowercase<Name>;

/** Variables of an embed server that an environment sets, by name in camel case. */
export type ServerSettings = {
  readonly [Name in SettableVariable as CamelCase<Name>]?: ServerEnv[Name];
};

/** Name of the setting for a variable: `maxQueueSize` for `MAX_QUEUE_SIZE`. */
export function settingName(variable: string): string {
  return variable.toLowerCase().replace(/_(.)/g, (_, letter: string) => letter.toUpperCase());
}

function variableName(setting: string): string {
  return setting.replace(/[A-Z]/g, (letter) => `_${letter}`).toUpperCase();
}

/** Names of the variables that environments and the chart can set. */
export const settableVariables = (Object.keys(serverEnv.shape) as ServerEnvName[]).filter(
  (name): name is SettableVariable => !(name in ownedVariables),
);

/** Returns the schema of a setting: its variable has a whole number, one of several words, or a list of texts. */
function settingOf(name: SettableVariable): z.ZodType {
  const variable = serverEnv.shape[name];
  const { type, items, minimum, maximum, ...words } = z.toJSONSchema(variable, {
    io: "output",
    unrepresentable: "any",
  }) as { type?: string; items?: object; minimum?: number; maximum?: number; enum?: string[] };
  const fallback = variable.safeParse(undefined).data;
  const value =
    words.enum !== undefined
      ? z.enum(words.enum)
      : type === "integer"
        ? integer(minimum ?? 0, maximum ?? Number.MAX_SAFE_INTEGER)
        : z.array(elementOf(variable));
  const note = fallback === undefined || items !== undefined ? "" : ` Default: ${fallback}.`;
  const text = `${variable.description}${note}`.replace(/\b[A-Z]+(_[A-Z]+)+\b/g, (mentioned) =>
    settableVariables.some((known) => known === mentioned)
      ? `\`${settingName(mentioned)}\``
      : mentioned,
  );
  return value.optional().describe(text);
}

/** Returns the schema of one element of a list, which applies the validation rule of the server's variable. */
function elementOf(variable: z.ZodType): z.ZodType {
  return z.string().superRefine((value, context) => {
    const [issue] = variable.safeParse(value).error?.issues ?? [];
    if (issue !== undefined) context.addIssue({ code: "custom", message: issue.message });
  });
}

const shape = Object.fromEntries(
  settableVariables.map((name) => [settingName(name), settingOf(name)]),
);

/** Settings `embed.server` of an environment. */
export const serverSettings: z.ZodType<ServerSettings> & { readonly shape: z.ZodRawShape } =
  z.strictObject(shape, { error: ownedError }) as never;

/** Error for variables that the stack sets itself. */
function ownedError(issue: { readonly code?: string; readonly keys?: unknown }) {
  const keys = issue.code === "unrecognized_keys" ? (issue.keys as readonly string[]) : [];
  const owned: Readonly<Record<string, string>> = ownedVariables;
  const key = keys.find((name) => variableName(name) in owned);
  return key === undefined
    ? undefined
    : `must not have ${key}, which ${owned[variableName(key)]} determines`;
}

/** Environment variables of settings. */
export function serverVariables(
  settings: ServerSettings = {},
): Partial<Record<SettableVariable, string>> {
  return Object.fromEntries(
    Object.entries(settings).map(([name, value]) => [variableName(name), String(value)]),
  );
}

/** Violated rules between variables, which also apply in a stack. */
export function variableConflicts(
  env: Pick<ServerEnv, "MODEL_PRECISION" | "EXECUTION_PROVIDER">,
): readonly string[] {
  return env.MODEL_PRECISION === "int8" && env.EXECUTION_PROVIDER === "cuda"
    ? ["MODEL_PRECISION int8 requires EXECUTION_PROVIDER cpu, got 'cuda'"]
    : [];
}

/**
 * Violated rules between the settings of a server, each of which is valid.
 *
 * @param device - Device of ONNX Runtime; `triton` for a gateway, which executes no model.
 */
export function serverFindings(
  settings: ServerSettings = {},
  device: "cpu" | "cuda" | "triton",
): readonly string[] {
  const { modelPrecision: precision = "fp32" } = settings;
  if (device === "triton") {
    return precision === "fp32"
      ? []
      : [`server.modelPrecision must be fp32 with the backend triton, got ${precision}`];
  }
  const result = serverEnv.safeParse({ ...serverVariables(settings), EXECUTION_PROVIDER: device });
  const lines = result.success
    ? variableConflicts(result.data)
    : result.error.issues.map(({ path, message }) => `${path.join(".")} ${message}`);
  return lines.map((line) => `server: ${line}`);
}
