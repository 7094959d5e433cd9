import { expect, test } from "vitest";
import { renderText } from "../../report/render/render-text.ts";
import { drillRecord, parseDrillRecord } from "./drill-record.ts";
import { drillReport } from "./drill-report.ts";
import { testDrillRecord as record } from "./test-drill-record.ts";

test("the record matches its schema", () => {
  expect(drillRecord.parse(record)).toEqual(record);
});

test("fails on an unknown drill", () => {
  const unknown = JSON.stringify({ ...record, drill: "reboot" });
  expect(() => parseDrillRecord(unknown, "unknown.json")).toThrow(
    "unknown.json: drill must be one of rollout, scale, drain, quota, kill, freeze, network, queue, memory, disk, model, certificate, canary, got 'reboot'",
  );
});

test("fails on a record of a later schema", () => {
  const later = JSON.stringify({ ...record, schema: 3 });
  expect(() => parseDrillRecord(later, "later.json")).toThrow(
    "later.json: record version (schema) must be 2, got 3: repeat the run with this version of clipstack",
  );
});

test("the report names the Deployment, the findings and the number of requests", () => {
  expect(renderText(drillReport(record))).toMatchInlineSnapshot(`
    "Deployment  clipstack/clipstack-embed
    Cluster     kind-clipstack, Kubernetes v1.33.13
    Nodes       node (2 CPU, 24684084Ki)
    Image       clipstack/embed:k8s-cpu
    When        2026-11-21 21:00 UTC, 16 s

    Checks

    Does the PodDisruptionBudget allow one eviction and reject the next, with no request lost?

    outcome  check                       finding
    ✓ pass   the PDB allows an eviction  1 of 2 pods evicted
    ✗ FAIL   every request is answered   1 of 30 requests failed

    Load

    2 requests per second, a new connection for each request, to http://127.0.0.1:8092

    phase      seconds  requests  failed  errors   p50 ms  p95 ms  p99 ms  max ms  samples
    evictions     15.4        30       1  1 × 503     174     652   901 *     901       29

    Ready pods

    2 → 1 (4 s) → 2 (10 s)

    ✗ every request is answered: 1 of 30 requests failed

    1 of 2 checks failed.
    "
  `);
});
