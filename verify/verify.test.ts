import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts } from "../artefact/free-ports.ts";
import {
  dockerDocument,
  embedsDocument,
  kubernetesDocument,
  type TestDocument,
} from "../artefact/test-artefact.ts";
import { parseRecord, type VerifyRecord } from "../bench/record/record.ts";
import { defaultModel } from "../contract/models/index.ts";
import { UserError } from "../contract/user-error.ts";
import { generateModel } from "../model-tools/generate/generate.ts";
import { tinyModel } from "../model-tools/generate/test-model.ts";
import type { VerifyEvent } from "./check-run.ts";
import { checks } from "./checks/registry.ts";
import { type VerifyOptions, verify } from "./verify.ts";
import { verifyReport } from "./verify-report.ts";

const project = fileURLToPath(new URL("../", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "clipstack-verify-test-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

const quoted = (text: string) => text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
const lossOf = (resource: string, before = "") =>
  new RegExp(
    `^${before}${quoted(resource)}: .*: \\d+ of \\d+ requests in flight at the stop were lost: `,
  );

let written = 0;
/** Writes a synthesized file. */
function environmentFile(document: TestDocument) {
  const name = `environment-${++written}`;
  mkdirSync(join(folder, name));
  const file = join(folder, name, "cdk.tf.json");
  writeFileSync(file, JSON.stringify(document));
  return { file, displayPath: `${name}/cdk.tf.json`, editedByHand: false };
}

async function run(
  documents: readonly TestDocument[],
  changes: Partial<VerifyOptions> = {},
): Promise<VerifyRecord> {
  const model = await tinyModel();
  return verify({
    environments: documents.map(environmentFile),
    project,
    serverCommand: [
      process.execPath,
      "--import",
      import.meta.resolve("tsx"),
      fileURLToPath(new URL("test-faulty-server.ts", import.meta.url)),
    ],
    modelRepository: join(project, "model_repository"),
    replaceModels: () => true,
    chooseModel: async (spec, modality) => ({
      spec,
      modality,
      file: model,
      subject: { name: "tiny", weights: "random" },
    }),
    portOffset: 0,
    secondsPerEndpoint: 0.3,
    signal: new AbortController().signal,
    onEvent: () => {},
    ...changes,
  });
}

/** Model repository with one model file. */
function repositoryOf(model: string): string {
  const repository = mkdtempSync(join(folder, "repository-"));
  mkdirSync(join(repository, "openclip_vit_b32/1"), { recursive: true });
  symlinkSync(model, join(repository, "openclip_vit_b32/1/model.onnx"));
  return repository;
}

describe("two environments without faults", () => {
  let record: VerifyRecord;
  const events: VerifyEvent[] = [];

  beforeAll(async () => {
    const [embed = 0, http = 0, grpc = 0, metrics = 0, cluster = 0] = await freePorts(5);
    const docker = dockerDocument({
      ports: { embed, triton: { http, grpc, metrics } },
      repository: join(project, "model_repository"),
    });
    record = await run([docker, kubernetesDocument(cluster)], {
      onEvent: (event) => events.push(event),
    });
  });

  test("pass every check", () => {
    expect(record.checks.filter(({ outcome }) => outcome !== "pass")).toEqual([]);
    expect(record.passed).toBe(true);
  });

  test("run every check of a simulation", () => {
    for (const name of ["two-services", "cluster"]) {
      const asked = record.checks.filter(({ environment }) => environment === name);
      expect(new Set(asked.map(({ id }) => id))).toEqual(
        // the environments have no text tower
        new Set(
          checks.filter((it) => it.only !== "deployed" && it.name !== "text").map((it) => it.name),
        ),
      );
    }
  });

  test("have parity and a load on every endpoint", () => {
    const paths = [
      "two-services/embed-http",
      "two-services/onnx-http",
      "two-services/onnx-grpc",
      "cluster/embed-http",
    ];
    const compared = record.checks.filter(({ id }) => id === "parity");
    expect(compared.map((it) => `${it.environment}/${it.endpoint}`)).toEqual(paths);
    expect(record.measurements.map((it) => `${it.environment}/${it.endpoint}`)).toEqual(paths);
    for (const { samples, imagesPerSecond } of record.measurements) {
      expect(samples).toBeGreaterThan(0);
      expect(imagesPerSecond).toBeGreaterThan(0);
    }
  });

  test("are compared on images of different formats", () => {
    const { sampleImages } = record.subject.settings;
    for (const kind of [/exif/, /cmyk/, /grey/, /\.png$/]) {
      expect(sampleImages.some((name) => kind.test(name))).toBe(true);
    }
  });

  test("run one process for a container and one for each replica", () => {
    const processes = record.environments.flatMap(({ services }) =>
      services.map((it) => it.processes),
    );
    expect(processes).toEqual([1, 1, 2]);
  });

  test("are reported as events", () => {
    expect(events.filter(({ kind }) => kind === "check")).toHaveLength(record.checks.length);
  });

  test("are stopped with requests in flight", () => {
    const stops = record.checks.filter(({ id }) => id === "stop");
    expect(stops).toHaveLength(3);
    for (const { measured } of stops) {
      expect(measured.requests).toBeGreaterThan(0);
      expect(measured.lost).toBe(0);
    }
  });

  test("name the server and its version", () => {
    expect(record.subject.server).toMatch(/^clipstack \d/);
  });

  test("produce a record that can be parsed", () => {
    expect(parseRecord(JSON.stringify(record), "record")).toEqual(
      JSON.parse(JSON.stringify(record)),
    );
  });
});

describe("faults", () => {
  let record: VerifyRecord;

  beforeAll(async () => {
    const ports = await freePorts(10);
    const port = (index: number) => ports[index] ?? 0;
    const model = await tinyModel();
    const otherModel = join(folder, "other.onnx");
    await generateModel({ spec: defaultModel, profile: "tiny", seed: 2, file: otherModel });
    const repository = repositoryOf(model);
    const document = embedsDocument("faults", [
      { name: "elsewhere", port: port(0), published: port(1), repository },
      { name: "other-weights", port: port(2), repository: repositoryOf(otherModel) },
      {
        name: "exits-at-start",
        port: port(3),
        env: ["MODEL_REPOSITORY=/nowhere"],
      },
      {
        name: "one-by-one",
        port: port(5),
        repository,
        env: ["MAX_BATCH_SIZE=1", "TEST_FAULT=hides errors"],
      },
      { name: "loses-requests", port: port(6), repository, env: ["TEST_FAULT=loses requests"] },
      {
        name: "does-not-stop",
        port: port(7),
        repository,
        graceSeconds: 1,
        env: ["TEST_FAULT=does not stop"],
      },
      {
        name: "exits-on-request",
        port: port(4),
        repository,
        env: ["TEST_FAULT=exits on a request"],
      },
      { name: "miscounts", port: port(8), repository, env: ["TEST_FAULT=counts no images"] },
      { name: "cuts", port: port(9), repository, env: ["TEST_FAULT=cuts a connection"] },
    ]);
    record = await run([document], { replaceModels: () => false });
  });

  /** First failure of one service in a check. */
  const failure = (service: string, id: string) => {
    const found = record.checks.find(
      (it) => it.service === service && it.id === id && it.outcome === "fail",
    );
    return found === undefined ? undefined : `${found.resource}: ${found.message}`;
  };
  const named = (service: string) => `docker_container.${service} (container 'faults-${service}')`;

  test("make the run fail", () => {
    expect(record.passed).toBe(false);
  });

  test("a wrong published port names its container", () => {
    expect(failure("elsewhere", "wiring")).toMatch(
      new RegExp(
        `^${quoted(named("elsewhere"))}: publishes \\d+, but the environment's embed-http endpoint is http://127.0.0.1:\\d+$`,
      ),
    );
  });

  test("other weights name their container, with both differences", () => {
    expect(failure("other-weights", "parity")).toMatch(
      new RegExp(
        `^${quoted(named("other-weights"))}: .* differ from the local reference: cosine -?0\\.\\d+, relative difference \\d.* %; must be ≥ 0\\.999 and ≤ 0\\.10 %$`,
      ),
    );
  });

  test("a process that ends during its start is reported with its container and last output", () => {
    const message = failure("exits-at-start", "start") ?? "";
    expect(message).toContain(`${named("exits-at-start")}: faults-exits-at-start ended with code `);
    expect(message).toContain("before it was ready; last lines of its output:\n");
    expect(message).toContain("/nowhere/openclip_vit_b32/1/model.onnx");
  });

  test("a service that does not batch names its container", () => {
    expect(failure("one-by-one", "batching")).toBe(
      `${named("one-by-one")}: 128 concurrent requests must share executions, got 128 images in 128 executions`,
    );
  });

  test("a wrong error names its container", () => {
    expect(failure("one-by-one", "errors")).toBe(
      `${named("one-by-one")}: an image that cannot be decoded: must get 422 undecodable_image, got 500; a broken image after a good one: must get 422 undecodable_image, got 500`,
    );
  });

  test("a stop that loses requests names its container", () => {
    expect(failure("loses-requests", "stop")).toMatch(lossOf(named("loses-requests")));
  });

  test("metrics that miss images name their container", () => {
    expect(failure("miscounts", "batching")).toMatch(
      new RegExp(
        `^${quoted(named("miscounts"))}: the metrics must count 16 single requests, got 0 images in \\d+ executions$`,
      ),
    );
  });

  test("a connection that is cut during a stop loses a request, and all other checks pass", () => {
    expect(failure("cuts", "stop")).toMatch(lossOf(named("cuts")));
    const others = record.checks.filter((it) => it.service === "cuts" && it.outcome !== "pass");
    expect(others.map(({ id }) => id)).toEqual(["stop"]);
  });

  test("a killed process names its container", () => {
    expect(failure("does-not-stop", "stop")).toMatch(
      new RegExp(
        `^${quoted(named("does-not-stop"))}: faults-does-not-stop ended by SIGKILL after \\d+ ms \\(grace 1 s\\), must end with code 0$`,
      ),
    );
  });

  test("a process that exits on a request names its container", () => {
    expect(failure("exits-on-request", "stop")).toBe(
      `${named("exits-on-request")}: faults-exits-on-request ended with code 9 during the checks`,
    );
  });

  test("checks of a service that did not start are skipped", () => {
    const asked = record.checks.filter(
      (it) => it.service === "exits-at-start" && it.id === "parity",
    );
    expect(asked.map(({ outcome, message }) => [outcome, message])).toEqual([
      ["skip", "the service did not start"],
    ]);
  });
});

test("a failing health check names its container", async () => {
  const [port = 0] = await freePorts(1);
  const document = embedsDocument("sick", [{ name: "embed", port, healthPath: "/no-such-path" }]);
  const { checks } = await run([document], { startLimitSeconds: 3 });
  expect(checks.find(({ outcome }) => outcome === "fail")).toMatchObject({
    id: "start",
    resource: "docker_container.embed (container 'sick-embed')",
    message: expect.stringContaining("sick-embed was not ready in 3 s: "),
  });
});

test("a failing liveness probe, and a replica whose stop fails the others, name their Deployment", async () => {
  const [port = 0] = await freePorts(1);
  const document = kubernetesDocument(port, "/no-such-path");
  const deployment = document.resource.kubernetes_deployment_v1?.embed as {
    spec: { template: { spec: { container: { env: unknown[] }[] } } };
  };
  deployment.spec.template.spec.container[0]?.env.push(
    { name: "TEST_FAULT", value: "replicas fail together" },
    { name: "TEST_FAULT_FILE", value: join(folder, "one-has-stopped") },
  );
  const { checks } = await run([document]);
  const failures = checks.filter(({ outcome }) => outcome === "fail");
  const named = "kubernetes_deployment_v1.embed (Deployment 'embed')";
  expect(failures.map(({ resource, message }) => `${resource}: ${message}`)).toEqual([
    ...[1, 2].map(
      (replica) =>
        `${named}: embed #${replica}: liveness probe (GET :http/no-such-path) gets status 404`,
    ),
    expect.stringContaining(
      `${named}: with embed #1 stopped, the other replicas must respond through the Service, got status 500 `,
    ),
  ]);
});

test.each(["http", "grpc"] as const)(
  "a connection to a Triton server that is cut during a stop over %s loses a request, and all other checks pass",
  async (protocol) => {
    const [embed = 0, http = 0, grpc = 0, metrics = 0] = await freePorts(4);
    const { resource, output } = dockerDocument({
      ports: { embed, triton: { http, grpc, metrics } },
      repository: join(project, "model_repository"),
    });
    const { environment } = output;
    const triton = {
      ...(resource.docker_container?.triton as object),
      env: ["TEST_FAULT=cuts a connection", `TEST_FAULT_PROTOCOL=${protocol}`],
    };
    const services = environment.value.services.filter(({ kind }) => kind === "triton");
    const { checks } = await run([
      {
        resource: { ...resource, docker_container: { triton } },
        output: { environment: { value: { ...environment.value, services } } },
      },
    ]);
    const others = checks.filter(({ outcome }) => outcome !== "pass");
    expect(others.map((it) => `${it.id} ${it.resource}: ${it.message}`)).toEqual([
      expect.stringMatching(
        lossOf("docker_container.triton (container 'two-services-triton-onnx')", "stop "),
      ),
    ]);
  },
);

test("fails before any start if a port is in use, naming the container", async () => {
  const other = createServer();
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  const address = other.address();
  const port = typeof address === "object" && address !== null ? address.port : 0;
  const document = embedsDocument("busy", [{ name: "embed", port }]);
  await expect(run([document])).rejects.toThrow(
    `port ${port} of busy/busy-embed is in use on this machine\nstop the program that listens there, or rerun with --port-offset 10000`,
  );
  await new Promise((resolve) => other.close(resolve));
});

describe("an environment whose model files are unavailable", () => {
  const remedy = "its tokenizer is missing: run 'npx clipstack model export missing'";
  const documents = async () => {
    const [first = 0, second = 0] = await freePorts(2);
    return [
      embedsDocument("available", [{ name: "embed", port: first }]),
      embedsDocument("unavailable", [{ name: "embed", port: second }]),
    ];
  };
  /** Fails for the second environment. */
  const choosing = async (): Promise<Pick<VerifyOptions, "chooseModel">> => {
    const file = await tinyModel();
    let calls = 0;
    return {
      chooseModel: async (spec, modality) => {
        if (++calls > 1) throw new UserError(remedy);
        return { spec, modality, file, subject: { name: "tiny", weights: "random" } };
      },
    };
  };

  test("is an error before any start", async () => {
    await expect(run(await documents(), await choosing())).rejects.toThrow(remedy);
  });

  test("is an error with the remedy if there is no other", async () => {
    const [port = 0] = await freePorts(1);
    const document = embedsDocument("unavailable", [{ name: "embed", port }]);
    const chooseModel = () => Promise.reject(new UserError(remedy));
    await expect(run([document], { chooseModel, skipUnavailable: true })).rejects.toThrow(remedy);
  });

  test("is skipped with the remedy if that is asked for, and the others are reported", async () => {
    const skipUnavailable = { ...(await choosing()), skipUnavailable: true };
    const record = await run(await documents(), skipUnavailable);
    expect(record.passed).toBe(true);
    const own = record.checks.filter(({ environment }) => environment === "unavailable");
    expect(own).toMatchObject([{ id: "start", outcome: "skip", message: remedy }]);
    expect(record.checks.filter(({ outcome }) => outcome === "pass").length).toBeGreaterThan(9);
    expect(verifyReport(parseRecord(JSON.stringify(record), "record.json")).caveats).toContainEqual(
      {
        kind: "subject",
        title: "unavailable was skipped",
        text: remedy,
      },
    );
  });
});

test("stops all processes when aborted", async () => {
  const [port = 0] = await freePorts(1);
  const controller = new AbortController();
  const running = run([embedsDocument("stopped", [{ name: "embed", port }])], {
    secondsPerEndpoint: 60,
    signal: controller.signal,
    onEvent: (event) => {
      if (event.kind === "phase" && event.text.startsWith("load")) {
        setTimeout(() => controller.abort(), 100);
      }
    },
  });
  await expect(running).rejects.toThrow("abort");
  await expect(isFreeAgain(port)).resolves.toBe(true);
});

async function isFreeAgain(port: number): Promise<boolean> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, "127.0.0.1", resolve);
  });
  await new Promise((resolve) => server.close(resolve));
  return true;
}
