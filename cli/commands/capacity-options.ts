import { InvalidArgumentError } from "commander";

/** A number with one of some units, in the first unit. */
function quantity(
  units: Readonly<Record<string, number>>,
  example: string,
  least: "above 0" | "0 or more" = "above 0",
) {
  return (text: string): number => {
    const [, digits = "", unit = ""] = /^([0-9.]+)\s*([A-Za-z/]*)$/.exec(text.trim()) ?? [];
    const value = Number(digits) * (units[unit.toLowerCase()] ?? Number.NaN);
    const inRange = least === "above 0" ? value > 0 : value >= 0;
    if (digits === "" || !(inRange && Number.isFinite(value))) {
      throw new InvalidArgumentError(`must be a number ${least} with its unit, like ${example}.`);
    }
    return value;
  };
}

export function bandwidth(text: string): number {
  return quantity(
    { kbps: 1e-3, "kbit/s": 1e-3, mbps: 1, "mbit/s": 1, gbps: 1000, "gbit/s": 1000 },
    "100Mbps",
  )(text);
}

export function milliseconds(text: string): number {
  return quantity({ us: 1e-3, ms: 1, s: 1000 }, "60ms", "0 or more")(text);
}

export function hours(text: string): number {
  return quantity({ s: 1 / 3600, min: 1 / 60, h: 1, d: 24 }, "6h or 90min")(text);
}
