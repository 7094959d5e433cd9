import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { parseEnvironment } from "./settings/settings.ts";
import { writeStacks } from "./write-stacks.ts";

function write(files: Readonly<Record<string, string>>) {
  const outdir = join(mkdtempSync(join(tmpdir(), "clipstack-write-")), "cdktf.out");
  const { summaries, notes, rejected } = writeStacks(
    Object.entries(files).map(([name, yaml]) => parseEnvironment(name, name, yaml)),
    { outdir },
  );
  const stackOf = (name: string) =>
    JSON.parse(readFileSync(join(outdir, `stacks/${name}/cdk.tf.json`), "utf8"));
  return { summaries, rejected, notes, stackOf };
}

/** Names of everything that a stack creates on its Docker endpoint. */
function dockerNames({
  resource,
}: {
  readonly resource: Readonly<Record<string, Readonly<Record<string, { readonly name: string }>>>>;
}): readonly string[] {
  return ["docker_container", "docker_network", "docker_volume", "docker_image"].flatMap((type) =>
    Object.values(resource[type] ?? {}).map(({ name }) => `${type} ${name}`),
  );
}

test("environments of a stack share no container, network, volume or built image", () => {
  const cpu = "accelerator: cpu";
  const triton = "{ server: emulator }";
  const services = `tritonOnnx: ${triton}\ntritonTrt: ${triton}`;
  const yaml = `stack: single-gpu\n${cpu}\n${services}`;
  // names that begin with the names of the other's services
  const { stackOf, rejected } = write({ a: yaml, "a-triton-onnx": yaml, "a-weights": yaml });
  expect(rejected).toEqual([]);
  const names = ["a", "a-triton-onnx", "a-weights"].flatMap((name) => dockerNames(stackOf(name)));
  const locals = (name: string) => JSON.stringify(stackOf(name).locals);
  const isBuilt = (name: string) => name.startsWith("docker_image ") && name.includes("${local.");
  // the tag of a built image is an expression, whose hash contains the environment's name
  expect(locals("a")).not.toBe(locals("a-weights"));
  const compared = names.filter((name) => !isBuilt(name));
  expect(compared.length).toBeGreaterThan(20);
  expect(new Set(compared).size).toBe(compared.length);
});

test.each(
  Object.entries({
    "network must be unique on unix:///var/run/docker.sock, got 'clipstack-b'": {
      a: "stack: single-gpu\nnetwork: clipstack-b",
      b: "stack: multi-gpu",
    },
    "cluster.name must be unique on this machine, got 'clipstack'": {
      a: "stack: kind",
      b: "stack: kind",
    },
    "namespace must be unique on gpu-cluster, got 'clipstack'": {
      a: "stack: kubernetes",
      b: "stack: kubernetes",
    },
  }),
)("rejects environments that share %s", (finding, files) => {
  const other = "stack: kind\ncluster: { name: other }\nembed: { nodePort: 30092 }";
  const { rejected, summaries } = write({ ...files, c: other });
  expect(rejected).toEqual([
    { name: "a", lines: [`a: ${finding}, as in b`] },
    { name: "b", lines: [`b: ${finding}, as in a`] },
  ]);
  expect(summaries).toEqual(["c: embed (2 to 6 pods)"]);
});

test("notes shared ports and GPUs of one Docker endpoint, and only there", () => {
  const { notes, rejected } = write({
    a: "stack: single-gpu",
    b: "stack: single-gpu\nembed: { port: 9002 }\ntritonTrt: { enabled: false }",
    far: "stack: single-gpu\nhost: { docker: 'ssh://gpu-2' }",
  });
  expect(rejected).toEqual([]);
  expect(notes).toEqual([
    "a and b share ports 8010, 8011, 8012 and GPU 0 of unix:///var/run/docker.sock: deploy one at a time, or change one of them",
  ]);
});

test("notes each group of environments that share ports or GPUs once", () => {
  const { notes } = write({
    a: "stack: single-gpu",
    b: "stack: single-gpu",
    c: "stack: single-gpu",
    d: "stack: single-gpu\ntritonOnnx: { enabled: false }\ntritonTrt: { enabled: false }",
  });
  expect(notes).toEqual([
    "a, b and c share ports 8010, 8011, 8012, 8020, 8021, 8022 of unix:///var/run/docker.sock: deploy one at a time, or change the others",
    "a, b, c and d share port 8002 and GPU 0 of unix:///var/run/docker.sock: deploy one at a time, or change the others",
  ]);
});

test("summarizes the pods of a kind cluster and of the chart", () => {
  const { summaries } = write({
    chart: "stack: kind\ndeployWith: helm",
    single:
      "stack: kubernetes\naccelerator: cpu\ntriton: { server: emulator, autoscaler: { minReplicas: 1, maxReplicas: 1 } }",
  });
  expect(summaries).toEqual([
    "chart: embed (2 to 6 pods)",
    "single: triton (1 pod), embed (2 to 6 pods)",
  ]);
});
