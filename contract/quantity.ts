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
