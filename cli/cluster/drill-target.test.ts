import { rmSync } from "node:fs";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { embedsDocument } from "../../artefact/test-artefact.ts";
import { synthesized } from "../test-synthesized.ts";
import { drillTarget } from "./drill-target.ts";

let outdir: string;
beforeAll(() => {
  const document = embedsDocument("one", [{ name: "embed", port: 8002 }]);
  const { value } = document.output.environment;
  const services = value.services.map((service) => ({
    ...service,
    workload: "clipstack-embed",
    authorization: "bearer" as const,
  }));
  const environment = { ...value, namespace: "mine", kubeconfig: "~/config", services };
  ({ outdir } = synthesized({
    ...document,
    output: { environment: { value: { ...environment, where: "kind-mine" } } },
  }));
  vi.stubEnv("CDKTF_OUTDIR", outdir);
});
afterAll(() => {
  vi.unstubAllEnvs();
  rmSync(outdir, { recursive: true, force: true });
});

const url = "http://127.0.0.1:8002";

test("uses the address and the API key of the environment", () => {
  expect(drillTarget("one", { context: "kind-mine" })).toMatchObject({ url, requiresKey: true });
});

test.each([{ context: "other" }, { kubeconfig: "other" }, { namespace: "other" }])(
  "does not use the environment's address or API key with %j",
  (args) => {
    const target = drillTarget("one", args);
    expect([target.url, target.service, target.requiresKey]).toEqual([undefined, undefined, false]);
  },
);

test("sends the API key to --url on another cluster", () => {
  const other = "http://127.0.0.1:9000";
  expect(drillTarget("one", { context: "other", url: other })).toMatchObject({
    url: other,
    requiresKey: true,
  });
});
