import type { Upgrade } from "./parse-record.ts";

/**
 * Upgrades of saved records. Schema 2 renamed fields and values and changed no meaning; in schema 3, a load point of `clipstack
 * bench` has rounds. The input is unchecked JSON: the schema of the result reports whatever is wrong in it.
 */

type Json = Readonly<Record<string, unknown>>;

const isJson = (value: unknown): value is Json =>
  typeof value === "object" && value !== null && !Array.isArray(value);

/** Changes the value of one field, if the object has it. */
function field(object: unknown, name: string, change: (value: unknown) => unknown): unknown {
  return isJson(object) && name in object ? { ...object, [name]: change(object[name]) } : object;
}

/** Renames fields; the order of all fields stays. */
function renamed(object: unknown, names: Readonly<Record<string, string>>): unknown {
  if (!isJson(object)) return object;
  return Object.fromEntries(
    Object.entries(object).map(([key, value]) => [names[key] ?? key, value]),
  );
}

const each = (change: (value: unknown) => unknown) => (list: unknown) =>
  Array.isArray(list) ? list.map(change) : list;

const mapped = (values: Readonly<Record<string, string>>) => (value: unknown) =>
  typeof value === "string" ? (values[value] ?? value) : value;

const payload = mapped({ encoded: "jpeg", u8: "uint8" });
const target = mapped({ embedded: "simulation", endpoints: "addresses" });
const endpointName = (name: unknown) =>
  typeof name === "string" ? name.replace(/_u8(?=_|$)/, "_uint8") : name;

const service = (value: unknown) =>
  field(
    field(renamed(value, { engine: "server" }), "backend", mapped({ onnx: "onnxruntime" })),
    "server",
    mapped({ bundled: "emulator" }),
  );

const environments = each((environment) => field(environment, "services", each(service)));

/** Load point, parity result, check or measurement. */
const onEndpoint = (value: unknown) =>
  field(renamed(value, { path: "endpoint", errorsInAll: "errorsWithWarmup" }), "payload", payload);

const loadPoint = (value: unknown) =>
  field(onEndpoint(value), "id", (id) =>
    typeof id === "string" ? id.replace(/_u8(?=[_ ])/, "_uint8") : id,
  );

/** Upgrades a record of `clipstack bench` or `clipstack sweep` from schema 1 to 2. */
function benchFrom1(record: Json): Json {
  const { subject, settings, parity, cells, ...others } = record;
  return {
    ...others,
    schema: 2,
    subject: field(
      field(renamed(subject, { runtime: "target" }), "target", target),
      "environments",
      environments,
    ),
    settings: field(renamed(settings, { paths: "endpoints" }), "endpoints", each(endpointName)),
    parity: each(onEndpoint)(parity),
    loadPoints: each(loadPoint)(cells),
  };
}

/** Upgrades a record of `clipstack bench` or `clipstack sweep` from schema 2 to 3. */
function benchFrom2({ settings, loadPoints, ...others }: Json): Json {
  return {
    ...others,
    schema: 3,
    settings: isJson(settings) ? oneRoundSettings(settings) : settings,
    loadPoints: each(oneRound)(loadPoints),
  };
}

function oneRoundSettings({
  stableWindows: windows,
  tolerance: _tolerance,
  maxWindows: _maxWindows,
  ...settings
}: Json): Json {
  return { ...settings, windows, rounds: 1 };
}

/** The measured windows of a load point as its only round; windows that it discarded are dropped. */
function oneRound(value: unknown): unknown {
  if (!isJson(value)) return value;
  const { warmup, windows, measuredWindows, stability, ...point } = value;
  const { verdict } = isJson(stability) ? stability : {};
  const measured = Array.isArray(windows) && typeof measuredWindows === "number";
  const { seconds, samples, requestsPerSecond, imagesPerSecond, achievedShare } = point;
  const { latencyMs, errors, client, invalid } = point;
  return {
    ...point,
    rounds: [
      {
        round: 1,
        warmup,
        windows: measured ? windows.slice(windows.length - measuredWindows) : windows,
        outcome: verdict === "short" || verdict === "interrupted" ? verdict : "complete",
        ...{ seconds, samples, requestsPerSecond, imagesPerSecond },
        ...{ achievedShare, latencyMs, errors, client, invalid },
      },
    ],
    stability: { verdict: verdict === "unstable" ? "drifting" : verdict },
  };
}

/** Upgrades of a record of `clipstack bench` or `clipstack sweep`. */
export const benchUpgrades: readonly Upgrade[] = [benchFrom1, benchFrom2];

/** Upgrades a record of `clipstack verify` from schema 1 to 2. */
export function upgradeVerifyRecord(record: Json): Json {
  const { subject, environments: measured, checks, measurements, ...others } = record;
  const upgraded = field(renamed(subject, { runtime: "target" }), "target", target);
  return {
    ...others,
    schema: 2,
    subject: field(upgraded, "settings", (settings) =>
      renamed(settings, { secondsPerPath: "secondsPerEndpoint" }),
    ),
    environments: environments(measured),
    checks: each(onEndpoint)(checks),
    measurements: each(onEndpoint)(measurements),
  };
}
