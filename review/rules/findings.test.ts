import { describe, expect, test } from "vitest";
import { parseSettings } from "../../stacks/settings.ts";
import { stateBefore } from "../input/change.ts";
import { plannedChange, savedChange } from "../test-plans.ts";
import { changeOf } from "../test-stacks.ts";
import { findingsOfChange, type Waiver } from "./findings.ts";

const edit = {
  path: ["resource", "docker_container", "embed/container", "read_only"],
  failing: false,
  passing: true,
} as const;
const writable = changeOf({ stack: "single-gpu", edits: [edit] }, "failing");
const [address = ""] = writable.resources.flatMap(({ constructPath, address }) =>
  constructPath === "single-gpu/embed/container" ? [address] : [],
);
const waiver: Waiver = {
  rule: "container-read-only",
  reason: "a profiler writes beside the program",
  expires: "2026-12-31",
};

const findings = (waivers: readonly Waiver[], today = "2026-12-01", change = writable) =>
  findingsOfChange(change, { waivers, today }).filter(({ severity }) => severity === "warning");

test("tells where, what, and how to fix it", () => {
  expect(findings([])).toEqual([
    {
      rule: "container-read-only",
      severity: "warning",
      stack: "single-gpu",
      address,
      message: "read_only should be true, got false",
      fix: "set read_only to true, with a tmpfs at /tmp",
    },
  ]);
});

test("says of a finding that it was there before the change", () => {
  const same = { ...edit, passing: false };
  const change = changeOf({ stack: "single-gpu", edits: [same] }, "failing");
  expect(findings([], "2026-12-01", change)).toMatchObject([{ existing: true }]);
});

describe("a finding of an instance whose key is a content hash", () => {
  const container = (key: string, action: "create" | "delete" | "no-op") => {
    const values = { name: "check", image: "a@sha256:0", privileged: true };
    return {
      address: `docker_container.check["${key}"]`,
      actions: [action],
      before: action === "create" ? null : values,
      after: action === "delete" ? null : values,
    };
  };
  const privileged = (...instances: readonly ReturnType<typeof container>[]) =>
    findingsOfChange(plannedChange(instances), { waivers: [], today: "2026-12-01" })
      .filter(({ rule }) => rule === "container-privileged")
      .map(({ address, existing = false }) => [address, existing]);

  test("is an existing finding if the instance replaces another one", () => {
    expect(privileged(container("6d16", "delete"), container("71b4", "create"))).toEqual([
      ['docker_container.check["71b4"]', true],
    ]);
  });

  test("is a new finding if the instance is an additional one", () => {
    expect(privileged(container("6d16", "no-op"), container("71b4", "create"))).toEqual([
      ['docker_container.check["6d16"]', true],
      ['docker_container.check["71b4"]', false],
    ]);
  });
});

test("tells the worst first, and the same every time", () => {
  const edits = [edit, { ...edit, path: [...edit.path.slice(0, 3), "privileged"], failing: true }];
  const change = changeOf({ stack: "single-gpu", edits }, "failing");
  const all = findingsOfChange(change, { waivers: [], today: "2026-12-01" });
  expect(all.map(({ rule }) => rule)).toEqual([
    "container-privileged",
    "container-read-only",
    "image-digest",
    "state-shared",
  ]);
  const turned = { ...change, resources: [...change.resources].reverse() };
  expect(findingsOfChange(turned, { waivers: [], today: "2026-12-01" })).toEqual(all);
});

test("takes what an earlier replacement left for nothing that the stack loses", () => {
  const left = (type: string) => ({
    ...plannedChange([{ address: `${type}.a`, actions: ["delete"], before: { name: "a" } }])
      .resources[0]!,
    deposed: "ab12",
  });
  const of = (resources: typeof writable.resources) =>
    findingsOfChange({ ...plannedChange([]), resources }, { waivers: [], today: "2026-12-01" });
  const types = ["docker_volume", "kubernetes_namespace_v1", "docker_container"];
  expect(of(types.map(left))).toEqual([]);
  expect(of(types.map((type) => ({ ...left(type), deposed: undefined })))).not.toEqual([]);
});

describe("a waiver", () => {
  test.each([
    ["of the whole stack", undefined],
    ["of the resource", address],
    ["of the construct", "single-gpu/embed/container"],
    ["of all that is in a construct", "single-gpu/embed"],
  ])("%s covers the finding, and its reason is told", (_, place) => {
    const found = findings([{ ...waiver, ...(place !== undefined && { address: place }) }]);
    expect(found).toMatchObject([{ waived: waiver.reason }]);
  });

  test("of a construct covers a finding about the change in a plan without construct paths", () => {
    const lost: Waiver = { ...waiver, rule: "volume-lost", address: "single-gpu/triton-trt" };
    const of = (change: typeof writable) =>
      findingsOfChange(change, { waivers: [lost], today: "2026-12-01" }).flatMap(
        ({ rule, waived }) => (/^(volume-lost|waiver-.*)$/.test(rule) ? [{ rule, waived }] : []),
      );
    const change = savedChange("gpu-swapped");
    expect(of(change)).toEqual([{ rule: "volume-lost", waived: waiver.reason }]);
    expect(of(stateBefore(change))).toEqual([{ rule: "waiver-unused", waived: undefined }]);
  });

  test("of one resource covers another instance of it too", () => {
    const resources = writable.resources.map((it) =>
      it.address === address ? { ...it, address: `${address}["a"]` } : it,
    );
    const found = findings([{ ...waiver, address }], "2026-12-01", { ...writable, resources });
    expect(found).toMatchObject([{ address: `${address}["a"]`, waived: waiver.reason }]);
  });

  test.each(["single-gpu/emb", "docker_container.other"])(
    "of %s covers nothing, and is told as one that can go",
    (place) => {
      const all = findingsOfChange(writable, {
        waivers: [{ ...waiver, address: place }],
        today: "2026-12-01",
      });
      expect(all.find(({ rule }) => rule === "container-read-only")).not.toHaveProperty("waived");
      expect(all).toContainEqual({
        rule: "waiver-unused",
        severity: "note",
        stack: "single-gpu",
        address: place,
        message: `the waiver of container-read-only at ${place} covers nothing`,
        fix: "remove it from review.waivers in the settings",
      });
    },
  );

  test("of a rule of an earlier version is one note that names what enforces it", () => {
    const yaml = `review: { waivers: [{ rule: autoscaler-target, reason: ${waiver.reason}, expires: 2020-01-01 }] }`;
    const { waivers } = parseSettings("single-gpu", "x", yaml).review;
    const found = findingsOfChange(writable, { waivers, today: "2026-12-01" });
    expect(found.filter(({ rule }) => rule.startsWith("waiver-"))).toEqual([
      {
        rule: "waiver-unused",
        severity: "note",
        stack: "single-gpu",
        message:
          "the waiver of autoscaler-target covers nothing: the review no longer has this rule, kube-linter's dangling-horizontalpodautoscaler enforces it",
        fix: "remove it from review.waivers in the settings",
      },
    ]);
  });

  test("holds on its last day", () => {
    expect(findings([waiver], "2026-12-31")).toMatchObject([{ waived: waiver.reason }]);
  });

  test("that has ended covers nothing, and is a finding itself", () => {
    const found = findings([waiver], "2027-01-01");
    expect(found).toMatchObject([
      { rule: "container-read-only" },
      {
        rule: "waiver-expired",
        message:
          "the waiver of container-read-only ended on 2026-12-31: a profiler writes beside the program",
      },
    ]);
    expect(found[0]).not.toHaveProperty("waived");
  });

  test("that has ended is not told where another one covers the same", () => {
    const again = { ...waiver, address, reason: "until the new profiler", expires: "2027-06-30" };
    expect(findings([waiver, again], "2027-01-01")).toMatchObject([
      { rule: "container-read-only", waived: again.reason },
    ]);
    const elsewhere = { ...again, address: "single-gpu/triton-onnx" };
    expect(findings([waiver, elsewhere], "2027-01-01")).toMatchObject([
      { rule: "container-read-only" },
      { rule: "waiver-expired" },
    ]);
  });

  test("of a note that has ended is a note", () => {
    const ofNote = { ...waiver, rule: "image-digest" } as const;
    const all = findingsOfChange(writable, { waivers: [ofNote], today: "2027-01-01" });
    expect(all).toContainEqual(
      expect.objectContaining({ rule: "waiver-expired", severity: "note" }),
    );
  });
});
