/** Samples of a Prometheus text page. */
export type Metrics = readonly MetricLine[];

export interface MetricLine {
  readonly name: string;
  readonly labels: Readonly<Record<string, string>>;
  readonly value: number;
}

/** Parses the text exposition format, https://prometheus.io/docs/instrumenting/exposition_formats/. */
export function parseMetrics(page: string): Metrics {
  return page.split("\n").flatMap((line) => {
    const match = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/.exec(line);
    if (match === null || line.startsWith("#")) return [];
    const labels = [...(match[2] ?? "").matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)];
    return [
      {
        name: match[1] ?? "",
        labels: Object.fromEntries(labels.map((label) => [label[1], label[2]])),
        value: Number(match[3]),
      },
    ];
  });
}

/** Sum of a metric over the lines with these labels; `undefined` if there is none. */
export function metricSum(
  metrics: Metrics,
  name: string,
  labels: Readonly<Record<string, string>> = {},
): number | undefined {
  const lines = metrics.filter(
    (line) =>
      line.name === name &&
      Object.entries(labels).every(([label, value]) => line.labels[label] === value),
  );
  return lines.length === 0 ? undefined : lines.reduce((sum, line) => sum + line.value, 0);
}
