import { z } from "zod";
import { tritonPorts } from "./ports.ts";

const port = z.int().min(1).max(65_535);

/**
 * Options of `tritonserver` that clipstack uses, by their exact name (`tritonserver --help`), in the order in which they are rendered.
 * Stacks render them, and the Triton emulator parses them.
 */
const schema = z.strictObject({
  "model-repository": z.string().min(1),
  /** Name of the configuration: `<model>/configs/<name>.pbtxt` replaces `<model>/config.pbtxt`. */
  "model-config-name": z.string().optional(),
  "http-address": z.string().default("0.0.0.0"),
  "http-port": port.default(tritonPorts.http),
  "grpc-address": z.string().default("0.0.0.0"),
  "grpc-port": port.default(tritonPorts.grpc),
  "metrics-address": z.string().default("0.0.0.0"),
  "metrics-port": port.default(tritonPorts.metrics),
  /** Maximum size of a request in bytes. Triton's default is 64 MiB (src/http_server.h, HTTP_DEFAULT_MAX_INPUT_SIZE). */
  "http-max-input-size": z.int().min(1).default(67_108_864),
  "model-control-mode": z.enum(["none", "explicit", "poll"]).default("none"),
  /** Models to load at start, with `--model-control-mode=explicit`. */
  "load-model": z.array(z.string()).default([]),
  /** `<apis>:<header>=<value>`: header required for these APIs. See {@link requiredHeaders}. */
  "http-restricted-api": z.array(z.string()).default([]),
  /** The same for gRPC, with {@link grpcRestrictionPrefix} before the metadata key. */
  "grpc-restricted-protocol": z.array(z.string()).default([]),
  "strict-readiness": z.boolean().default(true),
  "exit-on-error": z.boolean().default(true),
  "exit-timeout-secs": z.int().min(0).default(30),
  "disable-auto-complete-config": z.boolean().default(false),
  "allow-metrics": z.boolean().default(true),
  "allow-gpu-metrics": z.boolean().default(true),
  "log-verbose": z.int().min(0).default(0),
  /** `<setting>=<value>`, or `<mode>,<setting>=<value>`. See {@link openTelemetryOf}. */
  "trace-config": z.array(z.string()).default([]),
});
type FlagName = keyof typeof schema.shape;
const flagNames = Object.keys(schema.shape) as FlagName[];

/** Options without a value. */
const switches: ReadonlySet<string> = new Set<FlagName>(["disable-auto-complete-config"]);

/** Options with Triton's defaults. */
export type ResolvedTritonFlags = z.infer<typeof schema>;

/** Renders the command line of a Triton container, `["tritonserver", "--model-repository=…", …]`, in a fixed order. */
export function renderTritonCommand(flags: z.input<typeof schema>): readonly string[] {
  const words = ["tritonserver"];
  for (const name of flagNames) {
    const value = flags[name];
    if (value === undefined) continue;
    if (switches.has(name)) {
      if (value === true) words.push(`--${name}`);
    } else if (Array.isArray(value)) {
      words.push(...value.map((item) => `--${name}=${item}`));
    } else {
      words.push(`--${name}=${String(value)}`);
    }
  }
  return words;
}

/** Words of a container's command from `tritonserver` on, without the program that starts it; none for another command. */
export function tritonCommandOf(command: readonly string[]): readonly string[] {
  const isLaunched = command[0] === "python3" && command[1] === "-c";
  const start = isLaunched ? 3 : 0;
  return command[start]?.endsWith("tritonserver") ? command.slice(start) : [];
}

/**
 * Parses a Triton command line, `--name=value` or `--name value`, without the program's name.
 *
 * @throws {Error} naming the option, the rule and the value. Unknown options are rejected, as by Triton.
 */
export function parseTritonArgs(args: readonly string[]): ResolvedTritonFlags {
  const raw: Record<string, unknown> = {};
  const words = [...args];
  for (let word = words.shift(); word !== undefined; word = words.shift()) {
    const match = /^--([a-z-]+)(?:=(.*))?$/s.exec(word);
    const name = flagNames.find((known) => known === match?.[1]);
    if (match === null || name === undefined) throw new Error(`unrecognized option '${word}'`);
    if (switches.has(name)) {
      if (match[2] !== undefined) throw new Error(`--${name} takes no value, got '${match[2]}'`);
      raw[name] = true;
      continue;
    }
    const value = match[2] ?? words.shift();
    if (value === undefined) throw new Error(`--${name} needs a value`);
    raw[name] = readValue(name, value, raw[name]);
  }
  const result = schema.safeParse(raw);
  if (!result.success) {
    const issue = result.error.issues[0];
    const name = String(issue?.path[0] ?? "");
    const got = raw[name] === undefined ? "nothing" : `'${String(raw[name])}'`;
    throw new Error(`--${name}: ${issue?.message ?? "is invalid"}, got ${got}`);
  }
  requiredHeaders(result.data, "http-restricted-api");
  requiredHeaders(result.data, "grpc-restricted-protocol");
  openTelemetryOf(result.data);
  return result.data;
}

/**
 * Returns options that export the spans of requests that continue a sampled trace, and of no others.
 *
 * @param endpoint - `http://host:port` of an OpenTelemetry collector, OTLP over HTTP.
 * @param service - Name of the server in traces.
 */
export function tracingFlags(
  endpoint: string,
  service: string,
): Readonly<Record<"trace-config", string[]>> {
  return {
    "trace-config": [
      "mode=opentelemetry",
      "level=TIMESTAMPS",
      "rate=0",
      `opentelemetry,url=${otlpTraceUrl(endpoint)}`,
      `opentelemetry,resource=service.name=${service}`,
    ],
  };
}

/** URL of traces at an OpenTelemetry collector, OTLP over HTTP. */
export function otlpTraceUrl(endpoint: string): string {
  return `${endpoint.replace(/\/$/, "")}/v1/traces`;
}

export interface OpenTelemetrySettings {
  /** As returned by {@link otlpTraceUrl}. */
  readonly url: string;
  readonly service: string;
  /** One of this number of requests begins a trace; 0 is none. */
  readonly rate: number;
}

/**
 * Returns the settings of OpenTelemetry; undefined if the options enable no tracing.
 *
 * @throws {Error} for a setting that the Triton emulator does not have
 */
export function openTelemetryOf({
  "trace-config": settings,
}: Pick<ResolvedTritonFlags, "trace-config">): OpenTelemetrySettings | undefined {
  const values = new Map<(typeof traceSettings)[number], string>();
  for (const text of settings) {
    const name = traceSettings.find((known) => text.startsWith(`${known}=`));
    if (name === undefined || (name === "rate" && !/^rate=\d+$/.test(text))) {
      const names = traceSettings.join(" | ");
      throw new Error(`--trace-config must be <${names}>=<value>, got '${text}'`);
    }
    values.set(name, text.slice(name.length + 1));
  }
  if (values.get("mode") !== "opentelemetry" || values.get("level") !== "TIMESTAMPS")
    return undefined;
  return {
    url: values.get("opentelemetry,url") ?? otlpTraceUrl("http://localhost:4318"),
    service: values.get("opentelemetry,resource=service.name") ?? "triton-inference-server",
    rate: Number(values.get("rate") ?? 1000),
  };
}

const traceSettings = [
  "mode",
  "level",
  "rate",
  "opentelemetry,url",
  "opentelemetry,resource=service.name",
] as const;

/** Header that the model control API requires in the stacks. */
export const modelControlHeader = "model-control-key";

/** Environment variable with the key of the model control API; a secret must not be an argument. */
export const modelControlKeyVariable = "MODEL_CONTROL_KEY";

/** Header that no request can have, because a name cannot contain a colon: an API that requires it is closed. */
export const closedHeader = "no:header";

/** Triton's prefix of the header's name in gRPC metadata. */
export const grpcRestrictionPrefix = "triton-grpc-protocol-";

/** APIs that a client of a model does not need, by Triton's names. */
export const controlApis = ["shared-memory", "trace", "logging", "model-repository"] as const;
export type ControlApi = (typeof controlApis)[number];

export type RestrictionFlag = "http-restricted-api" | "grpc-restricted-protocol";

/**
 * Returns options that close the control APIs over both protocols.
 *
 * @param modelControl - `key`: loading and unloading models requires the key in {@link modelControlKeyVariable}, which
 * `triton-launcher.ts` or the Triton emulator reads. `open`: they require nothing.
 */
export function restrictControl(
  modelControl: "key" | "closed" | "open",
): Readonly<Record<RestrictionFlag, string[]>> {
  const apis = controlApis.filter((api) => api !== "model-repository" || modelControl === "closed");
  const restrictions = [
    `${apis.join(",")}:${closedHeader}=none`,
    ...(modelControl === "key"
      ? [`model-repository:${closedHeader}=$${modelControlKeyVariable}`]
      : []),
  ];
  return { "http-restricted-api": restrictions, "grpc-restricted-protocol": [...restrictions] };
}

export interface RequiredHeader {
  /** Lower-case name, with the prefix for gRPC. */
  readonly name: string;
  readonly value: string;
}

export type RestrictedApis = Readonly<Partial<Record<ControlApi, RequiredHeader>>>;

/**
 * Returns the header that each restricted API requires.
 *
 * @param key - Key of the model control API; without it an API that requires the key is closed.
 * @throws {Error} without the value, which is a secret
 */
export function requiredHeaders(
  flags: Pick<ResolvedTritonFlags, RestrictionFlag>,
  flag: RestrictionFlag,
  key?: string,
): RestrictedApis {
  const headers: Partial<Record<ControlApi, RequiredHeader>> = {};
  for (const text of flags[flag]) {
    const [, apis = "", name, value] = /^([^:=]*):([^=]+)=(.+)$/s.exec(text) ?? [];
    if (name === undefined || value === undefined) {
      throw new Error(`--${flag} must be <apis>:<header>=<value>, got '${text.split("=")[0]}'`);
    }
    const prefix = flag === "grpc-restricted-protocol" ? grpcRestrictionPrefix : "";
    const isKey = key !== undefined && value === `$${modelControlKeyVariable}`;
    const header = isKey
      ? { name: `${prefix}${modelControlHeader}`, value: key }
      : { name: `${prefix}${name.toLowerCase()}`, value };
    for (const api of apis.split(",")) {
      const known = controlApis.find((each) => each === api);
      if (known === undefined) {
        throw new Error(`--${flag} must be for ${controlApis.join(", ")}, got '${api}'`);
      }
      headers[known] = header;
    }
  }
  return headers;
}

function readValue(name: FlagName, value: string, before: unknown): unknown {
  const field = schema.shape[name];
  const type = field instanceof z.ZodString ? field : field.unwrap();
  if (type instanceof z.ZodArray) return [...(Array.isArray(before) ? before : []), value];
  if (type instanceof z.ZodNumber) {
    if (!/^-?\d+$/.test(value)) throw new Error(`--${name} must be an integer, got '${value}'`);
    return Number(value);
  }
  if (!(type instanceof z.ZodBoolean)) return value;
  if (/^(true|1|on|yes)$/i.test(value)) return true;
  if (/^(false|0|off|no)$/i.test(value)) return false;
  throw new Error(`--${name} must be true or false, got '${value}'`);
}
