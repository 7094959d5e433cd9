/** Metric of a service, as on its `/metrics` page. */
export interface Metric {
  readonly name: string;
  readonly type: "counter" | "gauge" | "histogram";
  readonly unit: string;
  readonly labels: readonly string[];
  readonly help: string;
}

export function namesOf<Table extends Readonly<Record<string, Metric>>>(
  table: Table,
): { readonly [Key in keyof Table]: Table[Key]["name"] } {
  const names = Object.entries(table).map(([key, { name }]) => [key, name]);
  return Object.fromEntries(names) as { [Key in keyof Table]: Table[Key]["name"] };
}

/** Labels that the help of a metric refers to, in all tables. */
export const labelMeanings = {
  route: "path of the route",
  status: "HTTP status; 499 if the client disconnected",
  model:
    "name of the model; `none` if the request reached none; in calls to Triton and in Triton's metrics, the name in the model repository",
  client: "name of the client's key, `default` for `API_KEY`; `none` without a valid key",
  file: "`keys` or `certificate`",
  modality: "`image` or `text`",
  target: "`host:port` of a Triton server",
  version: "version of the model",
  reason: "`REJECTED`, `CANCELED`, `BACKEND` or `OTHER`",
  clock_event:
    "reason for lower clocks, such as `hw_thermal`, `sw_thermal`, `hw_power_brake`, `power_cap`",
  gpu_uuid: "UUID of the GPU",
  gpu: "index of the GPU",
  UUID: "UUID of the GPU",
  modelName: "product name of the GPU",
  Hostname: "host name of the exporter",
} as const satisfies Readonly<Record<string, string>>;
