import type { Metric } from "./metric.ts";

/** Differences between a `/metrics` page and tables, in both directions: names, types, and the labels of samples except `le`. */
export function exposedDifferences(
  page: string,
  ...tables: readonly Readonly<Record<string, Metric>>[]
): readonly string[] {
  const metrics = tables.flatMap((table) => Object.values<Metric>(table));
  const exposed = [...page.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(
    ([, name, type]) => `${name} ${type}`,
  );
  const listed = metrics.map(({ name, type }) => `${name} ${type}`);
  return [
    ...exposed.filter((each) => !listed.includes(each)).map((each) => `not in the tables: ${each}`),
    ...listed.filter((each) => !exposed.includes(each)).map((each) => `not exposed: ${each}`),
    ...metrics.flatMap((metric) => wrongLabels(page, metric)),
  ];
}

function wrongLabels(page: string, { name, type, labels }: Metric): readonly string[] {
  const suffix = type === "histogram" ? "_count" : "";
  const samples = page.matchAll(new RegExp(`^${name}${suffix}(?:\\{(.*)\\})? `, "gm"));
  return [...samples].flatMap(([, list = ""]) => {
    const found = [...list.matchAll(/(\w+)="/g)].map((match) => match[1] ?? "").sort();
    return found.join() === [...labels].sort().join()
      ? []
      : [`labels of ${name}: ${found}, in the tables ${labels}`];
  });
}
