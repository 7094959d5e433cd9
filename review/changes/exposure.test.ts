import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { parse } from "yaml";
import type { Service } from "../../contract/environment.ts";
import { type PlannedResource, plannedChange, savedChange } from "../test-plans.ts";
import { exposuresOf } from "./exposure.ts";
import { comparisonOf } from "./impact-kinds.ts";

/** Exposures of created resources, as `<kind>: <description>`. */
function exposed(...resources: readonly Omit<PlannedResource, "actions">[]): readonly string[] {
  const change = plannedChange(resources.map((it) => ({ ...it, actions: ["create"] })));
  return exposuresOf(comparisonOf(change)).map(
    ({ kind, description }) => `${kind}: ${description}`,
  );
}

interface Case extends Omit<PlannedResource, "actions"> {
  readonly of: string;
  readonly exposures: readonly string[];
}
const cases: readonly Case[] = parse(readFileSync("review/changes/exposure.cases.yaml", "utf8"));

test.each(cases)("reports the exposures of $of", ({ of: _, exposures, ...resource }) => {
  expect(exposed(resource)).toEqual(exposures);
});

test("lists the servers on other hosts that receive images", () => {
  const address = "docker_container.embed";
  const service = { name: "embed", upstreams: ["gpu-2:8011"] } as unknown as Service;
  const facts = (env: readonly string[]) => ({
    values: new Map([[address, { type: "docker_container", values: { env } }]]),
    services: new Map([[address, service]]),
  });
  const found = (env: readonly string[]) =>
    exposuresOf({ ...comparisonOf(plannedChange([])), after: facts(env) }).map(
      ({ description }) => description,
    );
  expect(found([])).toEqual(["sends images to gpu-2:8011 in clear text"]);
  expect(found(["TRITON_TLS_CA_FILE=/tls/ca.pem"])[0]).toBe("sends images to gpu-2:8011 over TLS");
});

test("names the exposed component of a release", () => {
  const values = ["triton: { service: { type: NodePort } }"];
  const change = plannedChange([
    { address: "helm_release.r", actions: ["create"], after: { values } },
  ]);
  expect(exposuresOf(comparisonOf(change))).toMatchObject([{ name: "triton" }]);
});

test("ignores a NodePort that kind maps to the loopback interface", () => {
  expect(exposuresOf(comparisonOf(savedChange("kind-local-create")))).toEqual([]);
});

test("distinguishes new, removed and unchanged exposures", () => {
  const open = (port: number) => ({
    env: ["API_KEY=x"],
    ports: [{ external: port, ip: "0.0.0.0" }],
  });
  const change = plannedChange([
    { address: "docker_container.a", before: open(80), after: open(81) },
    { address: "docker_container.b", actions: ["no-op"], before: open(90), after: open(90) },
  ]);
  expect(
    exposuresOf(comparisonOf(change))
      .filter(({ kind }) => kind === "port")
      .map(({ status, description }) => `${status} ${description}`),
  ).toEqual([
    "new port 81/tcp on 0.0.0.0",
    "removed port 80/tcp on 0.0.0.0",
    "unchanged port 90/tcp on 0.0.0.0",
  ]);
});
