import { levenbergMarquardt } from "ml-levenberg-marquardt";
import { Matrix, solve } from "ml-matrix";
import { mean } from "./statistics.ts";

/**
 * The Universal Scalability Law (Gunther 1993): X(N) = λN / (1 + σ(N − 1) + κN(N − 1)).
 *
 * λ is what one client gets, σ the part that is done one at a time (contention), κ what the clients cost each other
 * (coherency): with κ > 0 more clients than the peak get less.
 */
export interface UslFit {
  /** Throughput of one client. */
  readonly lambda: number;
  readonly sigma: number;
  readonly kappa: number;
  /** Root of the mean squared relative difference from the measured points, 0..1. */
  readonly residual: number;
  /** Where the law has its maximum; `undefined` where it only ever grows. */
  readonly peak?: { readonly clients: number; readonly throughput: number };
  /** What it tends to without a maximum: λ/σ; `undefined` where nothing bounds it. */
  readonly ceiling?: number;
}

export interface Point {
  readonly clients: number;
  readonly throughput: number;
}

/** Fewer points than these fit any law: it has three parameters. */
export const uslMinimumPoints = 4;

export function uslThroughput(
  { lambda, sigma, kappa }: Pick<UslFit, "lambda" | "sigma" | "kappa">,
  clients: number,
): number {
  return (lambda * clients) / (1 + sigma * (clients - 1) + kappa * clients * (clients - 1));
}

/** The law that fits best, all parameters at least 0; `undefined` with fewer than four different numbers of clients. */
export function fitUsl(points: readonly Point[]): UslFit | undefined {
  const good = points.filter(({ clients, throughput }) => clients >= 1 && throughput > 0);
  if (new Set(good.map(({ clients }) => clients)).size < uslMinimumPoints) return undefined;
  // in units of the largest rate, and with relative errors: a point at one client counts as much as one at 128
  const scale = Math.max(...good.map(({ throughput }) => throughput));
  const x = good.map(({ clients }) => clients);
  const y = good.map(({ throughput }) => throughput / scale);
  const index = x.map((_, i) => i);
  const fits = startsOf(x, y).map((initialValues) =>
    levenbergMarquardt({ x: index, y: x.map(() => 1) }, relativeLaw(x, y), {
      initialValues: [...initialValues],
      jacobianFunction: relativeJacobian(x, y),
      minValues: [1e-9, 0, 0],
      maxValues: [1e9, 1e3, 1e3],
      maxIterations: 500,
      errorTolerance: 1e-14,
      improvementThreshold: 1e-9,
    }),
  );
  const [best] = fits.sort((a, b) => a.parameterError - b.parameterError);
  if (best === undefined) return undefined;
  const [lambda = 0, sigma = 0, kappa = 0] = best.parameterValues;
  return described({ lambda: lambda * scale, sigma, kappa }, good);
}

/** The law's rate at the i-th point, as a part of what was measured there: 1 where it fits. */
const relativeLaw =
  (x: readonly number[], y: readonly number[]) =>
  ([lambda = 0, sigma = 0, kappa = 0]: number[]) =>
  (i: number) =>
    uslThroughput({ lambda, sigma, kappa }, x[i] ?? 1) / (y[i] ?? 1);

const relativeJacobian =
  (x: readonly number[], y: readonly number[]) =>
  ([lambda = 0, sigma = 0, kappa = 0]: number[]) =>
  (i: number) => {
    const [n, rate] = [x[i] ?? 1, y[i] ?? 1];
    const below = 1 + sigma * (n - 1) + kappa * n * (n - 1);
    const slope = (-lambda * n) / below ** 2 / rate;
    return [n / below / rate, slope * (n - 1), slope * n * (n - 1)];
  };

/** Where to begin: N/X is linear in the law's parameters; and two that do not depend on the points' noise. */
function startsOf(x: readonly number[], y: readonly number[]): readonly (readonly number[])[] {
  const alone = Math.max(...x.map((n, i) => (y[i] ?? 0) / n));
  return [linearStart(x, y), [alone, 0.1, 1e-3], [alone, 0.5, 0]].filter(
    (start) => start !== undefined,
  );
}

/** Least squares of N/X = a + b(N − 1) + cN(N − 1), relative, with what is negative left out. */
function linearStart(x: readonly number[], y: readonly number[]): readonly number[] | undefined {
  for (const columns of [[0, 1, 2], [0, 1], [0, 2], [0]]) {
    const basis = x.map((n, i) => {
      const target = n / (y[i] ?? 1);
      return columns.map((column) => [1, n - 1, n * (n - 1)][column]! / target);
    });
    const ones = Matrix.ones(x.length, 1);
    // by singular values: two numbers of clients do not determine three columns
    const solved = solve(new Matrix(basis), ones, true).to1DArray();
    if (solved.some((value) => value < 0) || !(solved[0]! > 0)) continue;
    const [a, b, c] = [0, 1, 2].map((column) => solved[columns.indexOf(column)] ?? 0) as [
      number,
      number,
      number,
    ];
    return [1 / a, b / a, c / a];
  }
  return undefined;
}

/** Below this a parameter is nothing but the fit's rounding. */
const negligible = 1e-7;

function described(
  fitted: Pick<UslFit, "lambda" | "sigma" | "kappa">,
  points: readonly Point[],
): UslFit {
  const sigma = fitted.sigma < negligible ? 0 : fitted.sigma;
  const kappa = fitted.kappa < negligible ? 0 : fitted.kappa;
  const parameters = { lambda: fitted.lambda, sigma, kappa };
  const off = ({ clients: n, throughput }: Point) => uslThroughput(parameters, n) / throughput - 1;
  const clients = kappa > 0 ? Math.sqrt(Math.max(0, 1 - sigma) / kappa) : undefined;
  return {
    ...parameters,
    residual: Math.sqrt(mean(points.map((point) => off(point) ** 2))),
    ...(clients === undefined
      ? {}
      : {
          peak: {
            clients: Math.max(1, clients),
            throughput: uslThroughput(parameters, Math.max(1, clients)),
          },
        }),
    ...(kappa === 0 && sigma > 0 ? { ceiling: fitted.lambda / sigma } : {}),
  };
}

/** Where throughput stops growing, as it was measured. */
export interface Saturation {
  /** The most that was measured, and with how many clients. */
  readonly most: Point;
  /** The fewest clients that gave nearly all of it. */
  readonly enough: Point;
  /** Whether more clients were tried without getting more. */
  readonly reached: boolean;
}

/** Part of the most that counts as nearly all of it. */
export const nearlyAll = 0.95;

export function saturationOf(points: readonly Point[]): Saturation | undefined {
  const sorted = [...points].sort((a, b) => a.clients - b.clients);
  const [first, ...rest] = sorted;
  if (first === undefined) return undefined;
  const most = rest.reduce((best, it) => (it.throughput > best.throughput ? it : best), first);
  const enough = sorted.find(({ throughput }) => throughput >= nearlyAll * most.throughput) ?? most;
  return { most, enough, reached: (sorted.at(-1)?.clients ?? 0) > enough.clients };
}
