import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { describe, expect, onTestFinished, test } from "vitest";
import { parseArtefact } from "./artefact.ts";
import { helmReleases, isHelmInstalled, renderRelease } from "./helm-template.ts";
import { kubernetesDocument, type TestDocument } from "./test-artefact.ts";

// the folder that `.ci/helm` makes
const { CLIPSTACK_HELM } = process.env;
if (CLIPSTACK_HELM !== undefined) {
  process.env.PATH = [join(CLIPSTACK_HELM, "bin"), process.env.PATH].join(delimiter);
}

/** Chart with one Deployment and one Service in a temporary folder. */
function chart(): string {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-chart-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  mkdirSync(join(folder, "chart/templates/tests"), { recursive: true });
  const write = (file: string, lines: readonly string[]) =>
    writeFileSync(join(folder, "chart", file), lines.join("\n"));
  write("Chart.yaml", ["apiVersion: v2", "name: it", "version: 0.1.0"]);
  write("values.schema.json", ['{"properties": {"tag": {"pattern": "^[a-z0-9.-]+$"}}}']);
  write("templates/deployment.yaml", [
    "apiVersion: apps/v1",
    "kind: Deployment",
    "metadata: {name: {{ .Release.Name }}-embed}",
    "spec:",
    "  replicas: {{ .Values.replicas }}",
    "  template:",
    "    metadata: {labels: {app: embed}}",
    "    spec:",
    '      containers: [{name: embed, image: "embed:{{ .Values.tag }}", ports: [{containerPort: 8002}]}]',
  ]);
  write("templates/service.yaml", [
    "apiVersion: v1",
    "kind: Service",
    "metadata: {name: {{ .Release.Name }}-embed}",
    "spec: {selector: {app: embed}, ports: [{port: 8002}]}",
  ]);
  write("templates/tests/test.yaml", [
    "apiVersion: v1",
    "kind: Pod",
    'metadata: {name: test, annotations: {"helm.sh/hook": test}}',
    "spec: {containers: []}",
  ]);
  return folder;
}

/** Resources with one release of {@link chart}. */
function released(values: object) {
  return {
    helm_release: {
      it: {
        name: "clipstack",
        namespace: "inference",
        chart: `\${path.root}/chart`,
        values: [JSON.stringify(values)],
      },
    },
  };
}

function render(values: object) {
  const [release] = helmReleases(released(values), "cdk.tf.json", chart());
  if (release === undefined) throw new Error("there is no release");
  return renderRelease(release, "cdk.tf.json").map(({ manifest }) => manifest);
}

describe.skipIf(!isHelmInstalled())("a release of a chart (needs helm)", () => {
  test("has the objects that Helm renders, in its namespace, without tests", () => {
    expect(render({ replicas: 2, tag: "1" }).map(({ kind, metadata }) => [kind, metadata])).toEqual(
      [
        ["Service", { name: "clipstack-embed", namespace: "inference" }],
        ["Deployment", { name: "clipstack-embed", namespace: "inference" }],
      ],
    );
  });

  test("keeps Terraform expressions, although the chart's schema validates the value", () => {
    const tag = `k8s-cpu-\${substr(local.hash, 0, 12)}`;
    expect(render({ replicas: 2, tag })[1]).toMatchObject({
      spec: { template: { spec: { containers: [{ image: `embed:${tag}` }] } } },
    });
  });

  test("fails with Helm's message on values that the chart rejects", () => {
    expect(() => render({ replicas: 2, tag: "a b" })).toThrow(
      /^cdk\.tf\.json: helm_release\.it: helm template: .*does not match pattern/,
    );
  });

  test("has the workload of a service, with the ports of the Services that select its pods", () => {
    const document = kubernetesDocument() as TestDocument;
    document.resource = released({ replicas: 2, tag: "1" });
    const [service] = document.output.environment.value.services;
    Object.assign(service ?? {}, {
      resources: { release: "helm_release.it" },
      workload: "clipstack-embed",
    });
    const { workloads } = parseArtefact(JSON.stringify(document), "cdk.tf.json", chart());
    expect(workloads).toMatchObject([
      {
        address: "helm_release.it",
        kind: "deployment",
        name: "clipstack-embed",
        replicas: 2,
        inCluster: [{ internal: 8002, external: 8002 }],
        aliases: [
          "clipstack-embed",
          "clipstack-embed.inference",
          "clipstack-embed.inference.svc",
          "clipstack-embed.inference.svc.cluster.local",
        ],
      },
    ]);
  });
});

test("rejects a chart of a repository, because it is not on this machine", () => {
  const resources = {
    helm_release: { it: { name: "it", chart: "keda", repository: "https://example.com" } },
  };
  expect(() => helmReleases(resources, "cdk.tf.json", "/")).toThrow(
    "cdk.tf.json: helm_release.it: chart must be a folder of this machine, got 'keda' of https://example.com",
  );
});
