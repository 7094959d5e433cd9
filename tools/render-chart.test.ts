import { execFile, spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import { parse } from "yaml";
import { readModelConfig } from "../client/triton/model-config.ts";
import { type ChartValues, chartValues } from "../constructs/kubernetes/chart-values.ts";
import { checkModelConfig } from "../contract/model-config-check.ts";
import { catalogueSpecs } from "../contract/models/index.ts";
import { podAppName } from "../contract/pods.ts";
import { chartFiles, withTable } from "./render-chart.ts";

const root = fileURLToPath(new URL("../", import.meta.url));
const files = chartFiles();
const textOf = (path: string) => {
  const file = files.find((it) => it.path === `helm/clipstack/${path}`);
  if (file === undefined) throw new Error(`no ${path}`);
  return file.text;
};

interface JsonSchema {
  readonly description?: string;
  readonly properties?: Readonly<Record<string, JsonSchema>>;
}

test("values.yaml is what the schema fills in", () => {
  expect(parse(textOf("values.yaml"))).toEqual(JSON.parse(JSON.stringify(chartValues.parse({}))));
});

test("every value is described", () => {
  const silent: string[] = [];
  const look = (schema: JsonSchema, path: string) => {
    for (const [key, inner] of Object.entries(schema.properties ?? {})) {
      const name = path === "" ? key : `${path}.${key}`;
      if (inner.properties !== undefined) look(inner, name);
      else if (inner.description === undefined) silent.push(name);
    }
  };
  look(JSON.parse(textOf("values.schema.json")), "");
  expect(silent).toEqual([]);
});

test("values.schema.json is in the draft that every Helm 3 reads", () => {
  expect(JSON.parse(textOf("values.schema.json"))).toMatchObject({
    $schema: "http://json-schema.org/draft-07/schema#",
    additionalProperties: false,
  });
});

test("the chart has the version of the server", () => {
  const chart = parse(readFileSync(join(root, "helm/clipstack/Chart.yaml"), "utf8"));
  const { version } = JSON.parse(readFileSync(join(root, "inference-image/package.json"), "utf8"));
  expect(chart).toMatchObject({ version, appVersion: version, name: podAppName });
});

test("fails where the lines around the table of the README are gone", () => {
  expect(() => withTable("# A chart\n")).toThrow(
    "helm/clipstack/README.md: must have the two marker lines around its table",
  );
});

const valuesFiles = files.filter(({ path }) => /values-[\w-]+\.yaml$/.test(path));

test("there are values for kind, CPU nodes, one GPU and four", () => {
  expect(valuesFiles.map(({ path }) => path.split("/").at(-1))).toEqual([
    "values-kind.yaml",
    "values-cpu.yaml",
    "values-gpu.yaml",
    "values-gpu-4x.yaml",
  ]);
});

test.each(valuesFiles)("$path fits the schema, and changes something", ({ text }) => {
  const values = parse(text) as ChartValues;
  expect(chartValues.parse(values)).not.toEqual(chartValues.parse({}));
});

test.each(valuesFiles)(
  "$path names images of this project that docker-bake.hcl builds",
  ({ text }) => {
    const bake = readFileSync(new URL("../docker-bake.hcl", import.meta.url), "utf8");
    const version = /variable "VERSION" \{ default = "([^"]+)" \}/.exec(bake)?.[1] ?? "";
    const built = [...bake.matchAll(/"\$\{REGISTRY\}(clipstack\/[^"]+)"/g)].map(([, name]) =>
      name?.replace(`\${VERSION}`, version),
    );
    const values: { embed: Workload; triton?: Workload } = parse(text);
    for (const workload of [values.embed, values.triton]) {
      const { repository = "", tag } = workload?.image ?? {};
      const name = repository.replace(/^registry\.example\//, "");
      if (name.startsWith("clipstack/")) expect(built).toContain(`${name}:${tag}`);
    }
  },
);
interface Workload {
  readonly image?: { readonly repository: string; readonly tag: string };
}

test.each(files.filter(({ path }) => path.endsWith(".pbtxt")))(
  "$path is a configuration that Triton takes",
  ({ path, text }) => {
    const [, model] = /model-configs\/([^/]+)\.pbtxt$/.exec(path) ?? [];
    const config = readModelConfig(text, path);
    expect(config.name).toBe(model);
    expect(checkModelConfig(config, { specs: catalogueSpecs })).toEqual([]);
  },
);

describe("helm test", () => {
  const script = readFileSync(
    fileURLToPath(new URL("../helm/clipstack/files/embed-test.mjs", import.meta.url)),
    "utf8",
  );
  let server: Server | undefined;
  afterEach(() => {
    server?.closeAllConnections();
    server?.close();
  });

  const imageTower = { model: "openclip-vit-b32", modality: "image", width: 512 };
  const textTower = { model: "siglip2-base-224", modality: "text", width: 768 };

  /** Runs the script with a server that sends these responses, the last one repeatedly. */
  async function run(
    body: string | readonly string[],
    status = 200,
    env: Record<string, string> = {},
  ) {
    const bodies = [body].flat();
    const requests: Received[] = [];
    server = createServer(async (request, response) => {
      let bytes = 0;
      for await (const chunk of request) bytes += (chunk as Buffer).length;
      const { authorization: key, "content-type": type } = request.headers;
      const answer = bodies[requests.length] ?? bodies.at(-1);
      requests.push({ path: request.url, key, type, bytes });
      response.writeHead(status).end(answer);
    });
    await new Promise<void>((resolve) => server?.listen(0, "127.0.0.1", resolve));
    const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const outcome = await promisify(execFile)(
      process.execPath,
      ["--input-type=module", "--eval", script],
      { env: { TOWERS: JSON.stringify([imageTower]), ...env, EMBED_URL: url } },
    ).then(
      ({ stdout }) => ({ code: 0, text: stdout }),
      (error: { code: number; stderr: string }) => ({ code: error.code, text: error.stderr }),
    );
    return { ...outcome, text: outcome.text.trim().replaceAll(url, "URL"), requests };
  }
  const vector = (length: number) => Array.from({ length }, () => 1 / Math.sqrt(length));
  const responseOf = (...embeddings: readonly unknown[]) => JSON.stringify({ embeddings });

  test("sends an image and accepts one embedding of finite values", async () => {
    const { code, text, requests } = await run(responseOf(vector(512)), 200, { API_KEY: "secret" });
    expect({ code, text }).toEqual({
      code: 0,
      text: "URL: openclip-vit-b32, image: 512 finite values",
    });
    expect(requests).toEqual([
      {
        path: "/embed?model=openclip-vit-b32",
        key: "Bearer secret",
        type: "image/png",
        bytes: 484,
      },
    ]);
  });

  test("sends an image or a text to each tower, and reports each", async () => {
    const { code, text, requests } = await run(
      [responseOf(vector(512)), responseOf(vector(767))],
      200,
      { TOWERS: JSON.stringify([imageTower, textTower]) },
    );
    expect({ code, text }).toEqual({
      code: 1,
      text: "URL: siglip2-base-224, text: expected 768 values, got 767",
    });
    expect(requests.map(({ path, type }) => [path, type])).toEqual([
      ["/embed?model=openclip-vit-b32", "image/png"],
      ["/embed/text", "application/json"],
    ]);
  });

  test.each<[string, string, number, string]>([
    ["a wrong length", responseOf(vector(511)), 200, "expected 512 values, got 511"],
    [
      "two vectors",
      responseOf([1], [2]),
      200,
      'expected one embedding, got {"embeddings":[[1],[2]]}',
    ],
    [
      "a value that is not a number",
      responseOf([...vector(511), null]),
      200,
      "value 511 must be a finite number, got null",
    ],
    [
      "a vector without unit norm",
      responseOf(vector(512).map((value) => 2 * value)),
      200,
      expect.stringMatching(/^the norm of the embedding must be 1, got (2|1\.99)/) as never,
    ],
    ["an error status", "no key", 401, "/embed?model=openclip-vit-b32 returned 401: no key"],
  ])("fails on %s", async (_name, body, status, message) => {
    const { code, text } = await run(body, status);
    const prefix = "URL: openclip-vit-b32, image: ";
    expect(text.slice(0, prefix.length)).toBe(prefix);
    expect({ code, text: text.slice(prefix.length) }).toEqual({ code: 1, text: message });
  });

  test("fails with a one-line error if no server listens", async () => {
    const gone = createServer();
    await new Promise<void>((resolve) => gone.listen(0, "127.0.0.1", resolve));
    const { port } = gone.address() as AddressInfo;
    await new Promise((resolve) => gone.close(resolve));
    const { status, stderr } = spawnSync(
      process.execPath,
      ["--input-type=module", "--eval", script],
      {
        env: { EMBED_URL: `http://127.0.0.1:${port}`, TOWERS: JSON.stringify([imageTower]) },
        encoding: "utf8",
      },
    );
    expect(status).toBe(1);
    expect(stderr).toBe(
      `http://127.0.0.1:${port}: openclip-vit-b32, image: connect ECONNREFUSED 127.0.0.1:${port}\n`,
    );
  });
});

interface Received {
  readonly path?: string;
  readonly key?: string;
  readonly type?: string;
  readonly bytes: number;
}
