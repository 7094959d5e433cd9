import { expect, test } from "vitest";
import { reviewOf } from "../review.ts";
import { findingsOfChange } from "../rules/findings.ts";
import { harmless } from "../test-harmless-mutations.ts";
import { type Mutation, mutationsOf } from "../test-mutations.ts";
import { coverageOf } from "./coverage.ts";
import { comparisonOf } from "./impact-kinds.ts";

const kinds = { a: "absent", o: "other value", t: "other type", u: "unknown" } as const;

/** `docker_container image unknown` */
const accepted = new Set(
  Object.entries(harmless).flatMap(([type, text]) =>
    text.split("\n").flatMap((line) => {
      const [letters = "", names = ""] = line.trim().split(": ");
      return [...letters].flatMap((letter) =>
        names.split(" ").map((name) => `${type} ${name} ${kinds[letter as keyof typeof kinds]}`),
      );
    }),
  ),
);

const nameOf = ({ type, attribute, kind }: Mutation) => {
  const name = attribute.replace(
    /(labels|selector)\.(app\.kubernetes\.io\/\w+|k8s-app)$/,
    (_, map) => `${map}.*`,
  );
  return `${type} ${name} ${kind === "sensitive" ? "other value" : kind}`;
};

function verdictOf({ change }: Mutation): string {
  // without a complete review of thousands of mutations
  if (coverageOf(comparisonOf(change)).unexamined.some(({ changes }) => changes)) {
    return "attention";
  }
  const findings = findingsOfChange(change, { waivers: [], today: "2026-11-30" });
  return reviewOf([change], { findings }).verdict.level;
}

const all = [...mutationsOf()];

test("no mutation of a saved plan that matters is safe", { timeout: 120_000 }, () => {
  expect(all.length).toBeGreaterThan(10_000);
  const safe = all.filter((it) => !accepted.has(nameOf(it)) && verdictOf(it) === "safe");
  expect([...new Set(safe.map(nameOf))]).toEqual([]);
});

test("a change with an unknown attribute needs attention and is not blocked", () => {
  const levels = all
    .filter(({ attribute, action }) => attribute === "group_add" && action !== "create")
    .map(({ change }) => reviewOf([change]).verdict.level);
  expect(new Set(levels)).toEqual(new Set(["attention"]));
});

test("another label, selector, command or argument of pods is never safe", () => {
  const bindings =
    /^(spec\.(pod_)?selector\..+|spec\.template\.(metadata\.labels\..+|spec\.container\.(command|args)))$/;
  const own = all.filter(
    ({ type, attribute, kind, action }) =>
      type.startsWith("kubernetes_") &&
      bindings.test(attribute) &&
      (kind === "other value" || kind === "absent") &&
      action !== "create",
  );
  expect(own.length).toBeGreaterThan(20);
  const safe = own.filter((it) => verdictOf(it) === "safe");
  expect([...new Set(safe.map(nameOf))]).toEqual([]);
});
