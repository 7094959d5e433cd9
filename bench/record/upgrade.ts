/**
 * Upgrades of saved records from schema 1 to schema 2, which renamed fields and values and changed no meaning. The input is
 * unchecked JSON: the schema of the result reports whatever is wrong in it.
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

/** Upgrades a record of `clipstack bench` or `clipstack sweep`. */
export function upgradeBenchRecord(record: Json): unknown {
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

/** Upgrades a record of `clipstack verify`. */
export function upgradeVerifyRecord(record: Json): unknown {
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
