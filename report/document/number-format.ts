/** `a, b and c`. */
export function listed(parts: readonly string[], conjunction: "and" | "or" = "and"): string {
  if (parts.length < 2) return parts.join("");
  return `${parts.slice(0, -1).join(", ")} ${conjunction} ${parts.at(-1)}`;
}

/** `1 load`, `2 loads`. */
export function counted(count: number, one: string, many = `${one}s`): string {
  return `${formatCount(count)} ${count === 1 ? one : many}`;
}

/** Integer with narrow no-break spaces between thousands. */
export function formatCount(count: number): string {
  return String(Math.round(count)).replace(/\B(?=(\d{3})+$)/g, "\u202f");
}

/** Bytes in B, kB or MB. */
export function formatBytes(bytes: number): string {
  if (bytes < 1_000) return `${Math.round(bytes)} B`;
  const [value, unit] = bytes < 1_000_000 ? [bytes / 1_000, "kB"] : [bytes / 1_000_000, "MB"];
  return `${value >= 100 ? value.toFixed(0) : value.toFixed(1)} ${unit}`;
}

/** US dollars with at least three significant digits. */
export function formatUsd(usd: number): string {
  if (usd === 0) return "$0";
  const digits = Math.max(2, 2 - Math.floor(Math.log10(usd)));
  return `$${usd.toFixed(Math.min(7, digits))}`;
}

/** `1.43 ×`. */
export function formatRatio(ratio: number): string {
  return `${ratio >= 10 ? ratio.toFixed(1) : ratio.toFixed(2)} ×`;
}

/** Fraction as a percentage, with one decimal below 10 %. */
export function formatPercent(fraction: number): string {
  const percentage = fraction * 100;
  return `${percentage !== 0 && Math.abs(percentage) < 10 ? percentage.toFixed(1) : percentage.toFixed(0)} %`;
}

/** Milliseconds with three significant digits, at most two after the point. */
export function formatMs(ms: number): string {
  return ms >= 100 ? ms.toFixed(0) : ms >= 10 ? ms.toFixed(1) : ms.toFixed(2);
}

/** Images or requests per second. */
export function formatRate(perSecond: number): string {
  return perSecond >= 100 ? perSecond.toFixed(0) : perSecond.toFixed(1);
}

/** `45 s`, `2 min 5 s`. */
export function formatDuration(seconds: number): string {
  const rounded = Math.round(seconds);
  return rounded < 60 ? `${rounded} s` : `${Math.floor(rounded / 60)} min ${rounded % 60} s`;
}

/** Fraction as a percentage with two significant digits; below 0.001 % as a power of ten. */
export function formatFraction(fraction: number): string {
  const percentage = fraction * 100;
  if (percentage === 0) return "0 %";
  return `${percentage >= 0.001 ? percentage.toPrecision(2) : percentage.toExponential(0)} %`;
}
