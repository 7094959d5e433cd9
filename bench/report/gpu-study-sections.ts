import { numberField, tableOf, textField } from "../../report/document/document.ts";
import {
  counted,
  formatCount,
  formatMs,
  formatPercent,
  formatRate,
  formatRatio,
} from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { type Interval, pairedRatio } from "../stats/intervals.ts";
import { loadField, metricField, nameField, trustField } from "./load-point-table.ts";
import { clientsOf, loadPointsOfStudy, type Series, seriesOf } from "./load-points.ts";
import { isSameLoad, loadTable, type StudyBody, usableLoadPoints } from "./study-section.ts";

/** Throughput by number of GPUs relative to one GPU, at the load per GPU with the most measured numbers of GPUs. */
interface ScalingLine extends Pick<Series, "name"> {
  readonly points: readonly {
    readonly gpus: number;
    readonly point: LoadPoint;
    readonly speedup: number;
    readonly efficiency: number;
    /** 95 % confidence interval of the efficiency, from the ratios of the same round; absent with one round. */
    readonly interval?: Interval;
  }[];
}

function scalingLines(record: BenchRecord): readonly ScalingLine[] {
  return seriesOf(loadPointsOfStudy(record, "scaling")).flatMap(({ name, loadPoints }) => {
    const perGpu = new Map<string, Map<number, LoadPoint>>();
    for (const point of usableLoadPoints(loadPoints)) {
      const gpus = point.conditions.gpus ?? 1;
      const load = JSON.stringify([point.imagesPerRequest, (clientsOf(point) ?? 0) / gpus]);
      perGpu.set(load, (perGpu.get(load) ?? new Map<number, LoadPoint>()).set(gpus, point));
    }
    const [widest] = [...perGpu.values()]
      .filter((group) => group.has(1))
      .sort(
        (a, b) =>
          b.size - a.size || (b.get(1)?.imagesPerSecond ?? 0) - (a.get(1)?.imagesPerSecond ?? 0),
      );
    const single = widest?.get(1);
    if (widest === undefined || single === undefined || widest.size < 2) return [];
    const one = single.imagesPerSecond;
    const points = [...widest]
      .sort(([a], [b]) => a - b)
      .map(([gpus, point]) => ({
        gpus,
        point,
        speedup: point.imagesPerSecond / one,
        efficiency: point.imagesPerSecond / (gpus * one),
        interval: efficiencyInterval(single, point, gpus),
      }));
    return [{ name, points }];
  });
}

function efficiencyInterval(
  single: LoadPoint,
  point: LoadPoint,
  gpus: number,
): Interval | undefined {
  const speedup = point === single ? undefined : pairedRatio([[single, point]], "throughput");
  if (speedup === undefined) return undefined;
  const { ratio, low, high } = speedup;
  return { ratio: ratio / gpus, low: low / gpus, high: high / gpus };
}

const intervalText = ({ low, high }: Interval) => `${formatPercent(low)} to ${formatPercent(high)}`;

export function scaling(record: BenchRecord): StudyBody | undefined {
  const loadPoints = loadPointsOfStudy(record, "scaling");
  if (loadPoints.length === 0) return undefined;
  const lines = scalingLines(record);
  return {
    answer: lines.flatMap(({ name, points }) => {
      const last = points.at(-1);
      return last === undefined
        ? []
        : [
            `\`${name}\`: ${counted(last.gpus, "GPU")} reach ${formatRatio(last.speedup)} the throughput of one, a scaling efficiency of ${formatPercent(last.efficiency)}${last.interval === undefined ? " (one round)" : ` (95 %: ${intervalText(last.interval)})`}.`,
          ];
    }),
    tables: [
      tableOf(
        "Throughput by number of GPUs, at the same load per GPU",
        lines.flatMap(({ name, points }) => points.map((point) => ({ name, ...point }))),
        [
          nameField,
          numberField("GPUs", ({ gpus }) => gpus, formatCount),
          loadField,
          metricField("throughput"),
          numberField("ratio to one", ({ speedup }) => speedup, formatRatio),
          numberField(
            "efficiency",
            ({ efficiency }) => efficiency,
            formatPercent,
            "Throughput divided by N times that of one GPU",
          ),
          textField("efficiency, 95 %", ({ interval }) =>
            interval === undefined ? { text: "–", tone: "quiet" } : intervalText(interval),
          ),
          numberField("p95 ms", ({ point }) => point.latencyMs?.p95, formatMs),
          trustField,
        ],
      ),
    ],
  };
}

interface TopologyPair {
  readonly name: string;
  readonly clients: number;
  readonly group: LoadPoint;
  readonly perGpu: LoadPoint;
}

function topologyPairs(record: BenchRecord): readonly TopologyPair[] {
  return seriesOf(usableLoadPoints(loadPointsOfStudy(record, "topology"))).flatMap(
    ({ name, loadPoints }) =>
      loadPoints.flatMap((group) => {
        if (group.conditions.topology !== "instance-group") return [];
        const perGpu = loadPoints.find(
          (point) => point.conditions.topology === "per-gpu" && isSameLoad(point, group),
        );
        return perGpu === undefined
          ? []
          : [{ name, clients: clientsOf(group) ?? 0, group, perGpu }];
      }),
  );
}

export function topology(record: BenchRecord): StudyBody | undefined {
  const loadPoints = loadPointsOfStudy(record, "topology");
  if (loadPoints.length === 0) return undefined;
  const [fastest] = [...topologyPairs(record)].sort(
    (a, b) =>
      Math.max(b.group.imagesPerSecond, b.perGpu.imagesPerSecond) -
      Math.max(a.group.imagesPerSecond, a.perGpu.imagesPerSecond),
  );
  const ratio =
    fastest === undefined ? 1 : fastest.perGpu.imagesPerSecond / fastest.group.imagesPerSecond;
  return {
    answer:
      fastest === undefined
        ? []
        : [
            `\`${fastest.name}\` with ${counted(fastest.clients, "client")}: one Triton server per GPU reaches ${formatRate(fastest.perGpu.imagesPerSecond)} images/s, one across all GPUs ${formatRate(fastest.group.imagesPerSecond)} (${formatRatio(ratio)}).`,
          ],
    tables: [loadTable("Load points by topology", loadPoints)],
  };
}
