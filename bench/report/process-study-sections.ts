import type { BenchRecord } from "../record/bench-record.ts";
import { median } from "../stats/statistics.ts";
import { numberField, tableOf, textField } from "./document.ts";
import { barFigure } from "./figure-parts.ts";
import { environmentFields } from "./load-point-table.ts";
import { counted, formatCount, formatMs, formatPercent, listed } from "./number-format.ts";
import { boxSwatch } from "./plot-styles.ts";
import { type StudyBody, studyResults } from "./study-section.ts";

const seconds = (ms: number) =>
  ms >= 1_000 ? `${(ms / 1_000).toFixed(ms >= 10_000 ? 0 : 1)} s` : `${formatMs(ms)} ms`;

export function coldStart(record: BenchRecord): StudyBody | undefined {
  const found = studyResults(record, "cold-start");
  const starts = found.flatMap(({ environment, starts: list }) =>
    list.map((start) => ({ environment, ...start })),
  );
  if (starts.length === 0) return undefined;
  const services = [...new Set(starts.map(({ service }) => service))];
  const medians = services.map((service) => {
    const own = starts.filter((start) => start.service === service);
    const over = (ms: (start: (typeof own)[number]) => number) => median(own.map(ms)) ?? 0;
    return {
      service,
      live: over(({ liveMs, readyMs }) => liveMs ?? readyMs),
      ready: over(({ readyMs }) => readyMs),
      first: over(({ firstRequestMs }) => firstRequestMs),
      warm: over(({ warmRequestMs }) => warmRequestMs),
    };
  });
  return {
    answer: medians.map(({ service, ready, first, warm }) => {
      const slow =
        first > 2 * warm
          ? `; its first answer takes ${seconds(first)}, a warm one ${seconds(warm)}`
          : "";
      return `\`${service}\` is ready after ${seconds(ready)}${slow}.`;
    }),
    figures: barFigure(
      "From nothing to the first embedding",
      "Median of the rounds, s.",
      medians.map(({ service, live, ready, first }) => {
        return {
          label: service,
          value: seconds(ready + first),
          title: `${service}: live after ${seconds(live)}, ready after ${seconds(ready)}, first answer in ${seconds(first)}`,
          segments: [
            { colour: "server", value: live / 1_000 },
            { colour: "infer", value: (ready - live) / 1_000 },
            { colour: "queue", value: first / 1_000 },
          ],
        };
      }),
      "s",
      [
        boxSwatch("until live", "server"),
        boxSwatch("until ready", "infer"),
        boxSwatch("first answer", "queue"),
      ],
    ),
    tables: [
      tableOf("Each start", starts, [
        ...environmentFields(starts),
        textField("service", ({ service }) => service),
        numberField("round", ({ round }) => round, formatCount),
        numberField("live", ({ liveMs }) => liveMs, seconds),
        numberField("ready", ({ readyMs }) => readyMs, seconds),
        numberField("first answer", ({ firstRequestMs }) => firstRequestMs, seconds),
        numberField("warm answer", ({ warmRequestMs }) => warmRequestMs, seconds),
      ]),
    ],
  };
}

export function operators(record: BenchRecord): StudyBody | undefined {
  const found = studyResults(record, "operators");
  if (found.length === 0) return undefined;
  return {
    answer: found.map((study) => {
      const top = [...study.operators].sort((a, b) => b.share - a.share).slice(0, 3);
      const shares = top.map(({ operator, share }) => `${operator} ${formatPercent(share)}`);
      const fallbacks =
        study.cpuFallbacks === 0
          ? "No node fell back to the CPU."
          : `${counted(study.cpuFallbacks, "node")} of ${formatCount(study.nodes)} fell back to the CPU.`;
      return `\`${study.service}\`, batch ${study.batch}: ${listed(shares)} of the compute. ${fallbacks}`;
    }),
    figures: found.flatMap((study) =>
      barFigure(
        `Share of the compute by operator${found.length > 1 ? `, ${study.service}, batch ${study.batch}` : ""}`,
        undefined,
        [...study.operators]
          .sort((a, b) => b.share - a.share)
          .slice(0, drawnOperators)
          .map((row) => ({
            label: row.operator,
            value: formatPercent(row.share),
            title: `${row.operator}, ${counted(row.nodes, "node")} on ${row.provider}: ${formatPercent(row.share)}`,
            segments: [
              {
                colour: onCpu(row) && study.cpuFallbacks > 0 ? "queue" : "infer",
                value: row.share * 100,
              },
            ],
          })),
        "% of the compute",
        study.cpuFallbacks > 0
          ? [
              boxSwatch("on the provider that was asked for", "infer"),
              boxSwatch("on the CPU instead", "queue"),
            ]
          : [],
      ),
    ),
    tables: found.map((study) =>
      tableOf(
        `Operators of ${study.model} in ${study.service} of ${study.environment}, batch ${study.batch}, mean of ${counted(study.runs, "run")}`,
        [...study.operators].sort((a, b) => b.share - a.share),
        [
          textField("operator", ({ operator }) => operator),
          textField("runs on", ({ provider }) => provider.replace("ExecutionProvider", "")),
          numberField("nodes", ({ nodes }) => nodes, formatCount),
          numberField(
            "ms a run",
            ({ msPerRun }) => msPerRun,
            (value) => value.toPrecision(3),
          ),
          numberField("share", ({ share }) => share, formatPercent),
        ],
      ),
    ),
    notes: [
      "From ONNX Runtime's own profile: the share of the time that was spent in operators, not of the wall clock.",
    ],
  };
}

const drawnOperators = 10;

const onCpu = ({ provider }: { readonly provider: string }) => provider.startsWith("CPU");

const mebibytes = (value: number) =>
  value >= 1_024 ? `${(value / 1_024).toFixed(2)} GiB` : `${value.toFixed(0)} MiB`;

export function memory(record: BenchRecord): StudyBody | undefined {
  const found = studyResults(record, "memory").flatMap(({ environment, services }) =>
    services.map((service) => ({ environment, ...service })),
  );
  if (found.length === 0) return undefined;
  const places = environmentFields(found);
  const sum = (pick: (row: (typeof found)[number]) => number | undefined) =>
    found.reduce((total, row) => total + (pick(row) ?? 0), 0);
  const [resident, gpu] = [
    sum((row) => row.residentUnderLoadMiB ?? row.residentMiB),
    sum((row) => row.gpuMemoryUnderLoadMiB ?? row.gpuMemoryMiB),
  ];
  const parts = [
    ...(resident > 0 ? [`${mebibytes(resident)} of memory`] : []),
    ...(gpu > 0 ? [`${mebibytes(gpu)} of the GPU's`] : []),
  ];
  return {
    answer:
      parts.length === 0
        ? []
        : [`Under load, ${counted(found.length, "service")} hold ${listed(parts)} together.`],
    figures: barFigure(
      "Memory of each service",
      "MiB, when ready and what a load adds.",
      (
        [
          ["Resident memory", "residentMiB", "residentUnderLoadMiB"],
          ["GPU memory", "gpuMemoryMiB", "gpuMemoryUnderLoadMiB"],
        ] as const
      ).flatMap(([group, ready, loaded]) =>
        found.flatMap((row) => {
          const [before, after] = [row[ready], row[loaded]];
          const most = Math.max(before ?? 0, after ?? 0);
          if (most === 0) return [];
          return [
            {
              group,
              label: `${places.length > 0 ? `${row.environment} ` : ""}${row.service}`,
              value: mebibytes(most),
              title: `${row.service}: ${mebibytes(before ?? most)} when ready, ${mebibytes(most)} under load`,
              segments: [
                { colour: "infer", value: before ?? most },
                { colour: "queue", value: most - (before ?? most) },
              ],
            },
          ];
        }),
      ),
      "MiB",
      [boxSwatch("when ready", "infer"), boxSwatch("more under load", "queue")],
    ),
    tables: [
      tableOf("Memory of each service", found, [
        ...places,
        textField("service", ({ service }) => service),
        numberField("resident, ready", (row) => row.residentMiB, mebibytes),
        numberField("under load", (row) => row.residentUnderLoadMiB, mebibytes),
        numberField("GPU, ready", (row) => row.gpuMemoryMiB, mebibytes),
        numberField("GPU, under load", (row) => row.gpuMemoryUnderLoadMiB, mebibytes),
      ]),
    ],
  };
}
