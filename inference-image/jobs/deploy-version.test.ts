import { mkdtemp, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { readModelConfig } from "../../client/triton/model-config.ts";
import { ModelControl } from "../../client/triton/model-control.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { modelControlKeyVariable, parseTritonArgs } from "../../contract/triton-flags.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { type RunningTritonEmulator, startTritonEmulator } from "../../emulator/triton-emulator.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { writeModelRepository } from "../../model-tools/repository/repository.ts";
import { deployVersion, readDeployVersionArguments } from "./deploy-version.ts";

const model = tritonModelName(defaultModel, "fp32");

let repository: string;
let folder: string;
const servers: RunningTritonEmulator[] = [];

beforeEach(async () => {
  repository = await mkdtemp(join(tmpdir(), "clipstack-deploy-version-"));
  folder = join(repository, model);
  await writeModelRepository(
    [{ spec: defaultModel, files: { image: await tinyModel() } }],
    repository,
  );
  for (let index = 0; index < 2; index += 1) servers.push(await start());
});
afterEach(async () => {
  await Promise.all(servers.splice(0).map((server) => server.stop()));
  await rm(repository, { recursive: true });
});

function start(): Promise<RunningTritonEmulator> {
  return startTritonEmulator(
    {
      ...parseTritonArgs([
        `--model-repository=${repository}`,
        ...["--model-control-mode=explicit", `--load-model=${model}`],
        ...["http", "grpc"].map((service) => `--${service}-address=127.0.0.1`),
        "--allow-metrics=false",
      ]),
      "http-port": 0,
      "grpc-port": 0,
    },
    { log: () => {} },
  );
}

const urlOf = ({ ports }: RunningTritonEmulator) => `http://127.0.0.1:${ports.http}`;

async function deploy(urls: readonly string[]) {
  const args = ["--folder", folder, "--file", await tinyModel(), "--servers", urls.join(",")];
  return deployVersion(readDeployVersionArguments([...args, "--timeout-seconds", "5"]));
}

async function servedBy(server: RunningTritonEmulator): Promise<readonly string[]> {
  const control = new ModelControl(urlOf(server), model, undefined);
  try {
    return await control.servedVersions(20);
  } finally {
    await control.close();
  }
}

test("loads the new version in every server", async () => {
  const deployed = JSON.parse(await deploy(servers.map(urlOf)));
  expect(deployed).toMatchObject({ model, version: "2", served: ["2"] });
  for (const server of servers) expect(await servedBy(server)).toEqual(["2"]);
});

test("the fingerprint in the configuration is that of the new version, or of the previous one after a failure", async () => {
  const parametersOf = async () => {
    const text = await readFile(join(folder, "config.pbtxt"), "utf8");
    return readModelConfig(text, "config.pbtxt").parameters ?? {};
  };
  const before = await parametersOf();
  expect(before).toMatchObject({
    fingerprint: { string_value: expect.stringMatching(/^[0-9a-f]{64}$/) },
    fingerprint_version: { string_value: "1" },
  });
  await deploy(servers.map(urlOf));
  const version2 = { ...before, fingerprint_version: { string_value: "2" } };
  expect(await parametersOf()).toEqual(version2);
  await expect(deploy(["http://127.0.0.1:1"])).rejects.toThrow("version 3 is not served");
  expect(await parametersOf()).toEqual(version2);
});

test("every server serves the previous version if one cannot load the new one", async () => {
  const [first] = servers;
  await servers[1]!.stop();
  await expect(deploy(["http://127.0.0.1:1", urlOf(first!)])).rejects.toThrow(
    `${model}: version 2 is not served: http://127.0.0.1:1 does not respond`,
  );
  await expect(deploy([urlOf(first!), "http://127.0.0.1:1"])).rejects.toThrow("does not respond");
  await expect.poll(() => servedBy(first!), { timeout: 20_000 }).toEqual(["1"]);
  expect((await readdir(folder)).filter((name) => /\d/.test(name))).toEqual(["1"]);
}, 90_000);

test("reads the key from its variable and rejects invalid options", () => {
  const valid = ["--folder", "/models/x", "--file", "/tmp/x", "--timeout-seconds", "5"];
  const url = "http://triton:8000";
  const env = { [modelControlKeyVariable]: "a-key" };
  expect(readDeployVersionArguments([...valid, "--servers", `${url},${url}`], env)).toEqual({
    ...{
      folder: "/models/x",
      file: "/tmp/x",
      servers: [url, url],
      key: "a-key",
      timeoutSeconds: 5,
    },
  });
  expect(() => readDeployVersionArguments([...valid, "--servers", "triton:8000"])).toThrow(
    "deploy-version: --servers must be http://host:port, got 'triton:8000'",
  );
});
