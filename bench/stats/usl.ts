import { levenbergMarquardt } from "ml-levenberg-marquardt";
import { Matrix, solve } from "ml-matrix";
import { mean } from "../../target/stats/statistics.ts";
import { type Interval, meanInterval, ratioOf } from "./intervals.ts";

/**
 * The Universal Scalability Law (Gunther 1993): X(N) = λN / (1 + σ(N − 1) + κN(N − 1)).
 *
 * λ is the throughput of one client, σ the serial share (contention), κ the cost of coordination between clients
 * (coherency): with κ > 0, throughput falls beyond the peak.
 */
export interface UslFit {
  /** Throughput of one client. */
  readonly lambda: number;
  readonly sigma: number;
  readonly kappa: number;
  /** Root of the mean squared relative difference from the measured points, 0..1. */
  readonly residual: number;
  /** Maximum of the law; `undefined` if it grows monotonically. */
  readonly peak?: { readonly clients: number; readonly throughput: number };
  /** Asymptote λ/σ of a law without a maximum; `undefined` if unbounded. */
  readonly ceiling?: number;
}

export interface Point {
  readonly clients: number;
  readonly throughput: number;
}

/** Minimum number of different numbers of clients: the law has three parameters, and a fit must be able to miss. */
export const uslMinimumPoints = 5;

export function uslThroughput(
  { lambda, sigma, kappa }: Pick<UslFit, "lambda" | "sigma" | "kappa">,
  clients: number,
): number {
  return (lambda * clients) / (1 + sigma * (clients - 1) + kappa * clients * (clients - 1));
}

/** Best fit with non-negative parameters; `undefined` with fewer than five different numbers of clients. */
export function fitUsl(points: readonly Point[]): UslFit | undefined {
  const good = points.filter(({ clients, throughput }) => clients >= 1 && throughput > 0);
  if (new Set(good.map(({ clients }) => clients)).size < uslMinimumPoints) return undefined;
  // rates relative to the maximum and relative errors, so that points at 1 and at 128 clients have equal weight
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

/** Rate of the law at the i-th point relative to the measured rate. */
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

/** Initial values: the linear fit of N/X, and two that are independent of noise. */
function startsOf(x: readonly number[], y: readonly number[]): readonly (readonly number[])[] {
  const alone = Math.max(...x.map((n, i) => (y[i] ?? 0) / n));
  return [linearStart(x, y), [alone, 0.1, 1e-3], [alone, 0.5, 0]].filter(
    (start) => start !== undefined,
  );
}

/**
 * Initial values from a linear fit: relative least squares of N/X = a + b(N − 1) + cN(N − 1), with N clients, the rate X and
 * non-negative coefficients.
 */
function linearStart(x: readonly number[], y: readonly number[]): readonly number[] | undefined {
  for (const columns of [[0, 1, 2], [0, 1], [0, 2], [0]]) {
    const basis = x.map((n, i) => {
      const target = n / (y[i] ?? 1);
      return columns.map((column) => [1, n - 1, n * (n - 1)][column]! / target);
    });
    const ones = Matrix.ones(x.length, 1);
    // singular value decomposition, because two numbers of clients do not determine three columns
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

/** Smaller parameters are rounding errors of the fit. */
const negligible = 1e-7;

function described(
  fitted: Pick<UslFit, "lambda" | "sigma" | "kappa">,
  points: readonly Point[],
): UslFit {
  const sigma = fitted.sigma < negligible ? 0 : fitted.sigma;
  const kappa = fitted.kappa < negligible ? 0 : fitted.kappa;
  const parameters = { lambda: fitted.lambda, sigma, kappa };
  const relativeError = ({ clients: n, throughput }: Point) =>
    uslThroughput(parameters, n) / throughput - 1;
  const clients = kappa > 0 ? Math.sqrt(Math.max(0, 1 - sigma) / kappa) : undefined;
  return {
    ...parameters,
    residual: Math.sqrt(mean(points.map((point) => relativeError(point) ** 2))),
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

/** Peak of the law over rounds, each with its own fit. */
export interface UslPeak {
  /** Rounds with a fit, and those whose throughput has a maximum or an asymptote. */
  readonly rounds: number;
  readonly bounded: number;
  /** 95 % intervals of the maximum, or of the asymptote; absent if one round has neither. */
  readonly throughput?: Interval;
  /** Absent if the law of one round has no maximum. */
  readonly clients?: Interval;
}

/** Fits each round and returns the intervals of the peak over the rounds; `undefined` with fewer than two fitted rounds. */
export function uslPeak(rounds: readonly (readonly Point[])[]): UslPeak | undefined {
  const fits = rounds.map(fitUsl).filter((fit) => fit !== undefined);
  if (fits.length < 2) return undefined;
  const over = (values: readonly number[]) =>
    values.length === fits.length ? ratioOf(meanInterval(values.map(Math.log))) : undefined;
  const maxima = fits.flatMap(({ peak, ceiling }) => peak?.throughput ?? ceiling ?? []);
  return {
    rounds: fits.length,
    bounded: maxima.length,
    throughput: over(maxima),
    clients: over(fits.flatMap(({ peak }) => peak?.clients ?? [])),
  };
}

/** Measured saturation of throughput. */
export interface Saturation {
  /** Point with the maximum measured throughput. */
  readonly maximum: Point;
  /** Point with the fewest clients that is close to the maximum. */
  readonly sufficient: Point;
  /** Whether points with more clients than `sufficient` were measured. */
  readonly reached: boolean;
}

/** Share of the maximum that is considered close to it. */
const nearMaximumShare = 0.95;

export function saturationOf(points: readonly Point[]): Saturation | undefined {
  const sorted = [...points].sort((a, b) => a.clients - b.clients);
  const [first, ...rest] = sorted;
  if (first === undefined) return undefined;
  const maximum = rest.reduce(
    (best, point) => (point.throughput > best.throughput ? point : best),
    first,
  );
  const sufficient =
    sorted.find(({ throughput }) => throughput >= nearMaximumShare * maximum.throughput) ?? maximum;
  return { maximum, sufficient, reached: (sorted.at(-1)?.clients ?? 0) > sufficient.clients };
}
