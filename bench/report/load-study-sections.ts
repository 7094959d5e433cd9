import type { Figure } from "../../report/document/document.ts";
import { counted, formatCount, formatMs } from "../../report/document/number-format.ts";
import type { BenchRecord, LoadPoint } from "../record/bench-record.ts";
import { indexedLineFigure } from "./figure-parts.ts";
import {
  clientsOf,
  conditionsText,
  fastest,
  loadPointsOfStudy,
  ratioText,
  seriesOf,
} from "./load-points.ts";
import { loadTable, type StudyBody, usableLoadPoints } from "./study-section.ts";

export function queueDelay(record: BenchRecord): StudyBody | undefined {
  const loadPoints = loadPointsOfStudy(record, "queue-delay");
  if (loadPoints.length === 0) return undefined;
  const answer = seriesOf(usableLoadPoints(loadPoints)).flatMap(({ name, loadPoints: own }) => {
    const clients = own.map((point) => clientsOf(point) ?? 1);
    const [few, many] = [Math.min(...clients), Math.max(...clients)];
    const at = (count: number) =>
      own.filter((point) => clientsOf(point) === count).sort((a, b) => delayOf(a) - delayOf(b));
    const [shortest, best] = [at(many)[0], fastest(at(many))];
    if (shortest === undefined || best === undefined) return [];
    const bestDelay = delayOf(best);
    const minDelay = delayOf(shortest);
    if (bestDelay === minDelay) {
      return [
        `\`${name}\`: with ${counted(many, "client")}, a delay above ${minDelay / 1_000} ms does not increase the throughput.`,
      ];
    }
    const alone = (delay: number) =>
      at(few).find((point) => delayOf(point) === delay)?.latencyMs?.p50 ?? Number.NaN;
    const cost = alone(bestDelay) - alone(minDelay);
    const price =
      few === many || !(cost > 0)
        ? ""
        : `, and adds ${formatMs(cost)} ms of latency with ${counted(few, "client")}`;
    return [
      `\`${name}\`: with ${counted(many, "client")}, a delay of ${bestDelay / 1_000} ms has the highest throughput, ${ratioText(best.imagesPerSecond / shortest.imagesPerSecond, best, shortest)} that of ${minDelay / 1_000} ms${price}.`,
    ];
  });
  return {
    answer,
    figures: delayFigures(loadPoints),
    tables: [loadTable("Latency and throughput by queue delay", loadPoints)],
  };
}

function delayFigures(loadPoints: readonly LoadPoint[]): readonly Figure[] {
  const groups = seriesOf(usableLoadPoints(loadPoints)).flatMap(({ name, loadPoints: own }) =>
    [...new Set(own.map((point) => clientsOf(point) ?? 0))]
      .sort((a, b) => a - b)
      .map((clients) => ({
        name: `${seriesOf(loadPoints).length > 1 ? `${name}, ` : ""}${counted(clients, "client")}`,
        own: own
          .filter((point) => clientsOf(point) === clients)
          .sort((a, b) => delayOf(a) - delayOf(b)),
      })),
  );
  const x = {
    label: "queue delay, ms",
    kind: "steps",
    format: (us: number) => String(us / 1_000),
  } as const;
  const lines = (y: (point: LoadPoint) => number, unit: string) =>
    groups.map(({ name, own }) => ({
      name,
      points: own.map((point) => ({
        x: delayOf(point),
        y: y(point),
        title: `${name}, ${conditionsText(point.conditions)}: ${formatMs(y(point))} ${unit}`,
      })),
    }));
  return [
    ...indexedLineFigure("Latency by queue delay", "p50, logarithmic.", {
      description: "Latency (p50) by queue delay, one line for each number of clients",
      x,
      y: { label: "p50, ms", kind: "log", format: String },
      lines: lines((point) => point.latencyMs?.p50 ?? 0, "ms"),
    }),
    ...indexedLineFigure("Throughput by queue delay", undefined, {
      description: "Images per second by queue delay, one line for each number of clients",
      x,
      y: { label: "images/s", kind: "linear", format: formatCount },
      lines: lines((point) => point.imagesPerSecond, "images/s"),
    }),
  ];
}

const delayOf = ({ conditions }: LoadPoint) => conditions.queueDelayUs ?? 0;
