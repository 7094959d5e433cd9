import { describe, expect, test } from "vitest";
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
  reason: "a profiler writes next to the program",
  expires: "2026-12-31",
};

const findings = (waivers: readonly Waiver[], today = "2026-12-01", change = writable) =>
  findingsOfChange(change, { waivers, today }).filter(({ severity }) => severity === "warning");

test("reports the address, the message and the fix", () => {
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

test("marks an existing finding", () => {
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

test("sorts by severity, deterministically", () => {
  const edits = [edit, { ...edit, path: [...edit.path.slice(0, 3), "privileged"], failing: true }];
  const change = changeOf({ stack: "single-gpu", edits }, "failing");
  const all = findingsOfChange(change, { waivers: [], today: "2026-12-01" });
  expect(all.map(({ rule }) => rule)).toEqual([
    "container-privileged",
    "container-read-only",
    "image-digest",
    "state-shared",
  ]);
  const reversed = { ...change, resources: [...change.resources].reverse() };
  expect(findingsOfChange(reversed, { waivers: [], today: "2026-12-01" })).toEqual(all);
});

test("ignores deposed objects", () => {
  const deposed = (type: string) => ({
    ...plannedChange([{ address: `${type}.a`, actions: ["delete"], before: { name: "a" } }])
      .resources[0]!,
    deposed: "ab12",
  });
  const of = (resources: typeof writable.resources) =>
    findingsOfChange({ ...plannedChange([]), resources }, { waivers: [], today: "2026-12-01" });
  const types = ["docker_volume", "kubernetes_namespace_v1", "docker_container"];
  expect(of(types.map(deposed))).toEqual([]);
  expect(of(types.map((type) => ({ ...deposed(type), deposed: undefined })))).not.toEqual([]);
});

describe("a waiver", () => {
  test.each([
    ["of the whole stack", undefined],
    ["of the resource", address],
    ["of the construct", "single-gpu/embed/container"],
    ["of a parent construct", "single-gpu/embed"],
  ])("%s covers the finding", (_, target) => {
    const found = findings([{ ...waiver, ...(target !== undefined && { address: target }) }]);
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

  test("of a resource covers its instances", () => {
    const resources = writable.resources.map((it) =>
      it.address === address ? { ...it, address: `${address}["a"]` } : it,
    );
    const found = findings([{ ...waiver, address }], "2026-12-01", { ...writable, resources });
    expect(found).toMatchObject([{ address: `${address}["a"]`, waived: waiver.reason }]);
  });

  test.each(["single-gpu/emb", "docker_container.other"])(
    "of %s covers nothing and is reported as unused",
    (target) => {
      const all = findingsOfChange(writable, {
        waivers: [{ ...waiver, address: target }],
        today: "2026-12-01",
      });
      expect(all.find(({ rule }) => rule === "container-read-only")).not.toHaveProperty("waived");
      expect(all).toContainEqual({
        rule: "waiver-unused",
        severity: "note",
        stack: "single-gpu",
        address: target,
        message: `the waiver of container-read-only at ${target} covers nothing`,
        fix: "remove it from the waivers in the settings",
      });
    },
  );

  test("is valid on its last day", () => {
    expect(findings([waiver], "2026-12-31")).toMatchObject([{ waived: waiver.reason }]);
  });

  test("that has expired covers nothing and is reported", () => {
    const found = findings([waiver], "2027-01-01");
    expect(found).toMatchObject([
      { rule: "container-read-only" },
      {
        rule: "waiver-expired",
        message:
          "the waiver of container-read-only expired on 2026-12-31: a profiler writes next to the program",
      },
    ]);
    expect(found[0]).not.toHaveProperty("waived");
  });

  test("that has expired is not reported if another one covers the finding", () => {
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

  test("of a note that has expired is reported as a note", () => {
    const ofNote = { ...waiver, rule: "image-digest" } as const;
    const all = findingsOfChange(writable, { waivers: [ofNote], today: "2027-01-01" });
    expect(all).toContainEqual(
      expect.objectContaining({ rule: "waiver-expired", severity: "note" }),
    );
  });
});
