import { numberField, tableOf, textField } from "../../report/document/document.ts";
import { counted, formatCount, formatMs, listed } from "../../report/document/number-format.ts";
import { median } from "../../target/stats/statistics.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import { environmentFields } from "./load-point-table.ts";
import { type StudyBody, studyResults } from "./study-section.ts";

const seconds = (ms: number) =>
  ms >= 1_000 ? `${(ms / 1_000).toFixed(ms >= 10_000 ? 0 : 1)} s` : `${formatMs(ms)} ms`;

/** Median times of the starts of a service, in milliseconds. */
interface MedianStart {
  readonly service: string;
  readonly live: number;
  readonly ready: number;
  readonly first: number;
  readonly warm: number;
}

export function coldStart(record: BenchRecord): StudyBody | undefined {
  const starts = studyResults(record, "cold-start").flatMap(({ environment, starts: list }) =>
    list.map((start) => ({ environment, ...start })),
  );
  if (starts.length === 0) return undefined;
  const services = [...new Set(starts.map(({ service }) => service))];
  const medians = services.map((service): MedianStart => {
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
          ? `; its first response takes ${seconds(first)}, a warm one ${seconds(warm)}`
          : "";
      return `\`${service}\` is ready after ${seconds(ready)}${slow}.`;
    }),
    tables: [
      tableOf("Cold starts", starts, [
        ...environmentFields(starts),
        textField("service", ({ service }) => service),
        numberField("round", ({ round }) => round, formatCount),
        numberField("live", ({ liveMs }) => liveMs, seconds),
        numberField("ready", ({ readyMs }) => readyMs, seconds),
        numberField("first response", ({ firstRequestMs }) => firstRequestMs, seconds),
        numberField("warm response", ({ warmRequestMs }) => warmRequestMs, seconds),
      ]),
    ],
  };
}

const mebibytes = (value: number) =>
  value >= 1_024 ? `${(value / 1_024).toFixed(2)} GiB` : `${value.toFixed(0)} MiB`;

type ServiceMemory = ReturnType<typeof studyResults<"memory">>[number]["services"][number] & {
  readonly environment: string;
};

export function memory(record: BenchRecord): StudyBody | undefined {
  const services = studyResults(record, "memory").flatMap(({ environment, services: list }) =>
    list.map((service): ServiceMemory => ({ environment, ...service })),
  );
  if (services.length === 0) return undefined;
  const total = (pick: (row: ServiceMemory) => number | undefined) =>
    services.reduce((sum, row) => sum + (pick(row) ?? 0), 0);
  const resident = total((row) => row.residentUnderLoadMiB ?? row.residentMiB);
  const gpu = total((row) => row.gpuMemoryUnderLoadMiB ?? row.gpuMemoryMiB);
  const parts = [
    ...(resident > 0 ? [`${mebibytes(resident)} of memory`] : []),
    ...(gpu > 0 ? [`${mebibytes(gpu)} of GPU memory`] : []),
  ];
  return {
    answer:
      parts.length === 0
        ? []
        : [
            `Under load, ${counted(services.length, "service uses", "services use")} ${listed(parts)}.`,
          ],
    tables: [
      tableOf("Memory by service", services, [
        ...environmentFields(services),
        textField("service", ({ service }) => service),
        numberField("resident, ready", (row) => row.residentMiB, mebibytes),
        numberField("resident, under load", (row) => row.residentUnderLoadMiB, mebibytes),
        numberField("GPU, ready", (row) => row.gpuMemoryMiB, mebibytes),
        numberField("GPU, under load", (row) => row.gpuMemoryUnderLoadMiB, mebibytes),
      ]),
    ],
  };
}
