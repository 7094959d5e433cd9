import { z } from "zod";
import { clusterAddress } from "../../artefact/cluster-address.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { UserError } from "../../contract/user-error.ts";
import { budgets } from "../../monitoring/alerts.ts";
import { embedding, errorRatio, slowRatio } from "../../monitoring/expressions.ts";
import { type ClusterApi, namespacedPath } from "../cluster/cluster-api.ts";

/** Judgement of a candidate by the SLO, from Prometheus, and the weights of its route. */

/** Figures of the pods of a release. A ratio is absent without requests. */
export interface ReleaseFigures {
  readonly requests: number;
  /** Fraction of failed requests. */
  readonly errors?: number;
  /** Fraction of requests above the latency of the SLO. */
  readonly slow?: number;
}

/** Number of requests below which one slow request exceeds the budget of the SLO. */
export const minimumRequests = 1 / budgets.latency;

/** Value of a PromQL expression; undefined without data. */
export type Query = (expression: string) => Promise<number | undefined>;

const response = z.object({
  status: z.literal("success"),
  data: z.object({ result: z.array(z.object({ value: z.tuple([z.number(), z.string()]) })) }),
});

/**
 * Queries a Prometheus, through the API server if it is a Service of the cluster.
 *
 * @throws {UserError} if the address is not that of a Prometheus.
 */
export function prometheusQuery(api: Pick<ClusterApi, "get">, url: string): Query {
  const inside = clusterAddress(url);
  const base =
    inside === undefined
      ? url.replace(/\/+$/, "")
      : `${namespacedPath(inside.namespace, "v1", "services", `http:${inside.service}:${inside.port}`)}/proxy`;
  return async (expression) => {
    const path = `${base}/api/v1/query?${new URLSearchParams({ query: expression })}`;
    const body = await (inside === undefined
      ? fetch(path).then((it) => it.json())
      : api.get(path)
    ).catch((error: unknown) => {
      throw new UserError(`Prometheus at ${url} does not respond: ${error}`);
    });
    const parsed = response.safeParse(body);
    if (!parsed.success) throw new UserError(`Prometheus at ${url} rejects ${expression}`);
    const value = Number(parsed.data.data.result[0]?.value[1] ?? Number.NaN);
    return Number.isNaN(value) ? undefined : value;
  };
}

/** Figures of the pods of a Deployment over the last seconds. */
export async function releaseFigures(
  query: Query,
  { namespace, deployment }: { readonly namespace: string; readonly deployment: string },
  seconds: number,
  latencySeconds: number,
): Promise<ReleaseFigures> {
  const selector = `namespace="${namespace}",pod=~"${deployment}-.+"`;
  const window = `${seconds}s`;
  const [requests = 0, errors, slow] = await Promise.all([
    query(`sum(increase(${embedMetrics.requests}{${embedding(selector)}}[${window}]))`),
    query(errorRatio(selector, window)),
    query(slowRatio(selector, window, String(latencySeconds))),
  ]);
  return { requests: Math.round(requests), errors, slow };
}

/**
 * Judges a candidate: each ratio must be within the budget of the SLO, or at most that of the stable release in the same time.
 *
 * @returns `undecided` below {@link minimumRequests}
 */
export function judgeCandidate(
  candidate: ReleaseFigures,
  stable: ReleaseFigures,
): "passed" | "failed" | "undecided" {
  if (candidate.requests < minimumRequests) return "undecided";
  const isWithin = (ratio = 0, other = 0, budget = 0) => ratio <= Math.max(budget, other);
  return isWithin(candidate.errors, stable.errors, budgets.errors) &&
    isWithin(candidate.slow, stable.slow, budgets.latency)
    ? "passed"
    : "failed";
}

/** Figures as text: `412 requests, 0.00 % failed, 0.24 % slower than 0.25 s`. */
export function figuresText(
  { requests, errors = 0, slow = 0 }: ReleaseFigures,
  latencySeconds: number,
): string {
  const percent = (ratio: number) => `${(100 * ratio).toFixed(2)} %`;
  return `${requests} requests, ${percent(errors)} failed, ${percent(slow)} slower than ${latencySeconds} s`;
}

/** Backends of a rule of an HTTPRoute. */
export interface RouteRule {
  readonly backendRefs?: readonly { readonly name: string; readonly weight?: number }[];
}

/** Rules of a route that send `percent` of the requests of one Service to another Service. */
export function weightedRules(
  rules: readonly RouteRule[],
  stable: string,
  candidate: string,
  percent: number,
): readonly RouteRule[] {
  return rules.map((rule) => ({
    ...rule,
    backendRefs: rule.backendRefs
      ?.filter(({ name }) => name !== candidate)
      .flatMap((backend) => {
        if (backend.name !== stable) return [backend];
        if (percent === 0) return [{ ...backend, weight: 1 }];
        return [
          { ...backend, weight: 100 - percent },
          { ...backend, name: candidate, weight: percent },
        ];
      }),
  }));
}
