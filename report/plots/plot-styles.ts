import {
  type SymbolType,
  symbol,
  symbolCircle,
  symbolDiamond,
  symbolSquare,
  symbolTimes,
  symbolTriangle,
} from "d3-shape";
import type { Swatch } from "../document/document.ts";
import { round } from "./plot-svg.ts";

interface LineStyle {
  /** Class of the style sheet. */
  readonly colour: string;
  readonly dashed: boolean;
  readonly mark: SymbolType;
}

/** Style of an endpoint in all figures: colour by backend, dashes by protocol, mark by payload. */
export function endpointStyle(path: string): LineStyle {
  const [protocol = "", variant] = path.split("_");
  return {
    colour: [protocol.split("-")[0] ?? "", ...(variant === undefined ? [] : [variant])].join(" "),
    dashed: protocol.endsWith("grpc"),
    mark: markOf(variant, protocol.endsWith("grpc")),
  };
}

function markOf(variant: string | undefined, grpc: boolean): SymbolType {
  switch (variant) {
    case "uint8":
      return symbolTriangle;
    case "jpeg":
      return symbolDiamond;
    case "json":
      return symbolTimes;
    default:
      return grpc ? symbolSquare : symbolCircle;
  }
}

const sequence = [symbolCircle, symbolSquare, symbolTriangle, symbolDiamond];

/** Style of the n-th line of a figure whose lines are not endpoints. */
export function indexedStyle(index: number): LineStyle {
  return {
    colour: `k${index % 5}`,
    dashed: index % 2 === 1,
    mark: sequence[index % sequence.length] ?? symbolCircle,
  };
}

/** Legend entry of a line. */
export function lineSwatch({ name, style }: Pick<PlotLine, "name" | "style">): Swatch {
  return {
    label: name,
    named: true,
    mark: `<g class="series ${style.colour}"><line class="line${style.dashed ? " dashed" : ""}" x1="0" x2="26" y1="7" y2="7"/>${markAt(style, 13, 7, "")}</g>`,
  };
}

export const openSwatch: Swatch = {
  label: "hollow: not stable",
  mark: `<g class="series plain"><path class="mark open" transform="translate(13 7)" d="${symbol(symbolCircle, 64)() ?? ""}"/></g>`,
};

export const crossedSwatch: Swatch = {
  label: "crossed: invalid",
  mark: `<g class="series plain"><path class="crossed" d="M8 2l10 10M18 2l-10 10"/></g>`,
};

export const ringSwatch: Swatch = {
  label: "ringed: 95 % of the maximum",
  mark: `<g class="series plain"><circle class="ring" cx="13" cy="7" r="6"/></g>`,
};

export function boxSwatch(label: string, colour: string): Swatch {
  return {
    label,
    mark: `<rect class="part ${colour}" x="5" y="1" width="16" height="12" rx="2"/>`,
  };
}
/** Point of an inline SVG plot. Lines differ in marks and dashes as well, never in colour alone. */
export interface PlotPoint {
  readonly x: number;
  readonly y: number;
  readonly title: string;
  /** `open`: unreliable. `crossed`: invalid and not joined by the line. */
  readonly doubt?: "open" | "crossed";
  readonly ring?: boolean;
}

export interface PlotLine {
  readonly name: string;
  readonly style: LineStyle;
  /** In drawing order. */
  readonly points: readonly PlotPoint[];
  /** Drawn instead of straight lines between the points. */
  readonly curve?: readonly (readonly [x: number, y: number])[];
}

export function markAt({ mark }: LineStyle, x: number, y: number, more: string, size = 52): string {
  const times = mark === symbolTimes;
  return `<path class="mark${times ? " thin" : ""}${more}" transform="translate(${x} ${y})" d="${(symbol(mark, times ? 30 : size)() ?? "").replace(/\d+\.\d+/g, (number) => String(round(Number(number))))}"/>`;
}
