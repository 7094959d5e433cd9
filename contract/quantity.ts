const suffixes: Readonly<Record<string, number>> = {
  "": 1,
  n: 1e-9,
  u: 1e-6,
  m: 1e-3,
  k: 1e3,
  M: 1e6,
  G: 1e9,
  T: 1e12,
  P: 1e15,
  E: 1e18,
  Ki: 2 ** 10,
  Mi: 2 ** 20,
  Gi: 2 ** 30,
  Ti: 2 ** 40,
  Pi: 2 ** 50,
  Ei: 2 ** 60,
};

/** Parses a Kubernetes quantity: `250m` is 0.25, `1Gi` is 1073741824. Returns NaN if it is invalid. */
export function quantity(text: string): number {
  const match = /^([+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)([a-zA-Z]*)$/.exec(text.trim());
  const factor = suffixes[match?.[2] ?? "?"];
  return match === null || factor === undefined ? Number.NaN : Number(match[1]) * factor;
}

const unitSeconds: Readonly<Record<string, number>> = {
  ...{ h: 3_600, m: 60, s: 1, ms: 1e-3 },
  ...{ us: 1e-6, µs: 1e-6, ns: 1e-9 },
};

/** Seconds of a Go duration, as Docker and Terraform write it: `2m0s`, `90s`, `500ms`; `undefined` if it is invalid. */
export function goSeconds(duration: unknown): number | undefined {
  if (duration === "0") return 0;
  if (typeof duration !== "string" || !/^(\d+(\.\d+)?(h|m|s|ms|us|µs|ns))+$/.test(duration))
    return undefined;
  return [...duration.matchAll(/(\d+(?:\.\d+)?)(h|ms|us|µs|ns|m|s)/g)].reduce(
    (sum, [, count, unit]) => sum + Number(count) * (unitSeconds[unit ?? ""] ?? 0),
    0,
  );
}
