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

test("an environment is reached at its own address, with its key", () => {
  expect(drillTarget("one", { context: "kind-mine" })).toMatchObject({ url, asksForKey: true });
});

test.each([{ context: "other" }, { kubeconfig: "other" }, { namespace: "other" }])(
  "with %j nothing is sent to the environment's own address",
  (args) => {
    const target = drillTarget("one", args);
    expect([target.url, target.service, target.asksForKey]).toEqual([undefined, undefined, false]);
  },
);

test("in another cluster, an address that is given is asked with the key", () => {
  const other = "http://127.0.0.1:9000";
  expect(drillTarget("one", { context: "other", url: other })).toMatchObject({
    url: other,
    asksForKey: true,
  });
});
