import {
  newSection,
  numberField,
  type Section,
  tableOf,
  textField,
} from "../../report/document/document.ts";
import { formatUsd } from "../../report/document/number-format.ts";
import type { BenchRecord } from "../record/bench-record.ts";
import { metricField, nameField, trustField } from "./load-point-table.ts";
import {
  costBasis,
  fastest,
  isUnmodified,
  seriesOf,
  settingText,
  usdPerThousand,
} from "./load-points.ts";

export function costSection(record: BenchRecord): Section | undefined {
  const basis = costBasis(record);
  if (typeof basis === "string") {
    return record.loadPoints.length === 0
      ? undefined
      : newSection("cost", "Cost", { answer: [basis] });
  }
  // cheapest first
  const rows = seriesOf(record.loadPoints.filter(isUnmodified))
    .flatMap(({ name, loadPoints }) => {
      const point = fastest(loadPoints);
      return point === undefined
        ? []
        : [{ name, point, usd: usdPerThousand(basis, point.imagesPerSecond) }];
    })
    .sort((a, b) => a.usd - b.usd);
  const [first] = rows;
  if (first === undefined) return undefined;
  return newSection("cost", "Cost", {
    answer: [
      `With \`${first.name}\`, a million images cost $${(first.usd * 1_000).toFixed(2)} and take ${duration(1e6 / first.point.imagesPerSecond)}.`,
    ],
    tables: [
      tableOf("Cost at each endpoint's highest throughput", rows, [
        nameField,
        textField("load", ({ point }) => settingText(point)),
        metricField("throughput"),
        numberField("1,000 images", ({ usd }) => usd, formatUsd),
        numberField(
          "a million images",
          ({ usd }) => usd * 1_000,
          (value) => `$${value.toFixed(2)}`,
        ),
        numberField("duration of a million", ({ point }) => 1e6 / point.imagesPerSecond, duration),
        trustField,
      ]),
    ],
    notes: [
      `Price: $${basis.usdPerHour} per hour, from ${basis.source}, on ${basis.date}. Check the current price. Cost = price ÷ 3600 ÷ images per second × 1000, at full load.`,
    ],
  });
}

function duration(seconds: number): string {
  if (seconds < 5_400) return `${(seconds / 60).toFixed(0)} min`;
  return `${(seconds / 3_600).toFixed(1)} h`;
}
