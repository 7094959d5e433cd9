import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { embedPaths } from "../contract/embed-routes.ts";
import { engineCacheMount } from "../contract/model-config.ts";
import { withModalities } from "../contract/model-spec.ts";
import { catalogueSpecs, defaultModel, defaultModels } from "../contract/models/index.ts";
import { oipPaths } from "../contract/oip-paths.ts";
import { hostPorts, tritonPorts } from "../contract/ports.ts";
import {
  defaultModelsArgument,
  modelsArgument,
  servedModels,
} from "../contract/server/model-list.ts";
import { modelRepositoryMount } from "../contract/server/server-env.ts";
import { parseTritonArgs, restrictControl } from "../contract/triton-flags.ts";
import { tritonModelName } from "../contract/triton-models.ts";

const folder = fileURLToPath(new URL("../", import.meta.url));
const read = (path: string) => readFileSync(join(folder, path), "utf8");
const { version } = JSON.parse(read("inference-image/package.json")) as {
  readonly version: string;
};
const bake = read("docker-bake.hcl");
const server = "inference-image/Dockerfile";
const gpu = "inference-image/Dockerfile.gpu";
const triton = "model_repository/image/Dockerfile.triton";
const allInOne = "model_repository/image/Dockerfile.all-in-one";
const weights = "model_repository/image/Dockerfile.weights";
const textTower = withModalities(defaultModel, ["text"]);
const dockerfiles = [server, gpu, triton, allInOne];

/** Default of a build argument. */
function defaultOf(dockerfile: string, name: string): string | undefined {
  return new RegExp(`^ARG ${name}=(.*)$`, "m").exec(read(dockerfile))?.[1];
}

describe("the Dockerfiles", () => {
  test.each([triton, allInOne, weights])("%s has the default models", (dockerfile) => {
    expect(defaultOf(dockerfile, "MODELS")).toBe(defaultModelsArgument);
    if (dockerfile === weights) return;
    expect(read(dockerfile)).toMatch(/^(ENV .*| {2}.*) ?TRITON_MODELS=\$\{MODELS\}( |$)/m);
  });

  test("the build writes its models as the embed server reads them", () => {
    const [line = ""] = /^list=.*$/m.exec(read("model_repository/image/weights.sh"))!;
    for (const specs of [defaultModels, catalogueSpecs, [textTower, ...catalogueSpecs.slice(1)]]) {
      const env = { ...process.env, MODELS: modelsArgument(specs) };
      const { stdout } = spawnSync("sh", ["-c", `${line}; echo "$list"`], {
        encoding: "utf8",
        env,
      });
      expect(servedModels.parse(stdout)).toEqual(specs);
    }
  });

  test.each(dockerfiles)("%s uses the version of the package", (dockerfile) => {
    expect(defaultOf(dockerfile, "VERSION")).toBe(version);
  });

  test.each([...dockerfiles, weights])(
    "%s is built by the classic builder too, and runs as nobody special",
    (dockerfile) => {
      const text = read(dockerfile);
      expect(text).not.toMatch(/^# *syntax|--mount|--link|--chmod|<</m);
      // Dockerfile.weights has the user of its base
      const last = text.slice(text.lastIndexOf("\nFROM "));
      const users = [...last.matchAll(/^USER (.*)$/gm)].map(([, user]) => user);
      expect(users.at(-1) ?? "1000:1000").toBe("1000:1000");
    },
  );

  test("the bake file has the same default base images and version", () => {
    for (const [name, dockerfile] of [
      ["NODE_IMAGE", server],
      ["NODE_IMAGE", gpu],
      ["CUDA_IMAGE", gpu],
      ["TRITON_IMAGE", triton],
      ["TRITON_IMAGE", allInOne],
      ["VERSION", server],
      ["MODELS", weights],
    ] as const) {
      expect(bake).toContain(`variable "${name}" { default = "${defaultOf(dockerfile, name)}" }`);
    }
  });

  test("every target of the bake file sets or inherits platforms", () => {
    const targets = new Map(
      [...bake.matchAll(/^target "([\w-]+)" \{\n([\s\S]*?)^\}/gm)].map(
        ([, name = "", body = ""]) => [name, body],
      ),
    );
    const hasPlatforms = (name: string): boolean => {
      const body = targets.get(name) ?? "";
      const bases = /inherits\s+= \[([^\]]*)\]/.exec(body)?.[1]?.match(/[\w-]+/g) ?? [];
      return /^ +platforms += \[\S/m.test(body) || bases.some(hasPlatforms);
    };
    const images = [...targets.keys()].filter((name) => name !== "_common");
    expect(images.length).toBeGreaterThan(5);
    expect(images.filter((name) => !hasPlatforms(name))).toEqual([]);
  });

  test("the engine cache folder of the model configurations is writable", () => {
    for (const dockerfile of [triton, allInOne]) {
      expect(read(dockerfile)).toContain(`install -d -o 1000 -g 1000 ${engineCacheMount}\n`);
      expect(read(dockerfile)).toContain(`VOLUME ${engineCacheMount}\n`);
    }
  });

  test("the command line is valid for Triton", async () => {
    const [, command] = /^CMD (\[.*\])$/m.exec(read(triton))!;
    const [program, ...args] = JSON.parse(command!) as [string, ...string[]];
    const script = join(folder, "model_repository/image", basename(program));
    const [, variables = ""] = /^ENV (.*)$/m.exec(read(triton))!;
    const env = Object.fromEntries(
      variables
        .replace(/\$\{MODELS\}/, String(defaultOf(triton, "MODELS")))
        .split(" ")
        .map((pair) => pair.split("=")),
    );
    const flags = await tritonFlagsOf(script, args, env);
    expect(flags).toMatchObject({
      "model-repository": modelRepositoryMount,
      "load-model": [tritonModelName(defaultModel, "fp32")],
      "http-port": tritonPorts.http,
      "grpc-port": tritonPorts.grpc,
      "metrics-port": tritonPorts.metrics,
      ...restrictControl("key"),
    });
    expect(read(triton)).toContain("COPY image/triton image/launch.py ");
    // the stand-in for tritonserver is a script, to which the launcher passes no key
    const withKey = await tritonFlagsOf(script, args, { ...env, MODEL_CONTROL_KEY: "a-key" });
    expect(withKey).toEqual(flags);
  });
});

describe("the CUDA provider of the GPU image", () => {
  const require = createRequire(import.meta.url);
  const script = join(dirname(require.resolve("onnxruntime-node")), "..", "script");

  test("is selected with the flag of onnxruntime-node's install script", () => {
    const [, name, value] = /RUN (ONNXRUNTIME\w+)=(\w+) node /.exec(read(gpu))!;
    const { stdout } = spawnSync(
      process.execPath,
      ["-p", `require(${JSON.stringify(join(script, "install-utils.js"))}).parseInstallFlag()`],
      { encoding: "utf8", env: { ...process.env, [name!]: value } },
    );
    expect(stdout).toBe("cuda12\n");
  });

  test("has the version of onnxruntime-node and the files named in the Dockerfile", () => {
    const { manifests, packages } = require(join(script, "install-metadata.js"));
    const ort = JSON.parse(read("inference-image/package.json")).dependencies["onnxruntime-node"];
    expect(packages["nuget:linux/x64:cuda12"]).toEqual({
      name: "Microsoft.ML.OnnxRuntime.Gpu.Linux",
      versions: [{ feed: "nuget", version: ort }],
    });
    for (const name of ["cuda", "tensorrt"]) {
      const file = `libonnxruntime_providers_${name}.so`;
      expect(Object.keys(manifests["linux/x64:cuda12"])).toContain(`./${file}`);
      expect(read(gpu)).toContain(file);
    }
  });
});

describe("the all-in-one image", () => {
  const { embed, tritonOnnx, tritonTrt } = hostPorts;
  const tritons = [
    { service: "triton-onnx", suffix: '""', modelKind: "fp32", ports: tritonOnnx },
    { service: "triton-trt", suffix: "_trt", modelKind: "trt", ports: tritonTrt },
  ];

  test("publishes the ports of a GPU host", () => {
    const ports = [embed, ...tritons.flatMap(({ ports: it }) => [it.http, it.grpc, it.metrics])];
    expect(read(allInOne)).toContain(`\nEXPOSE ${ports.join(" ")}\n`);
    expect(read(allInOne)).toContain("SERVICES=embed,triton-onnx,triton-trt ");
  });

  test.each(tritons)(
    "$service serves its models at its ports",
    ({ service, suffix, modelKind, ports }) => {
      const run = read(`model_repository/image/all-in-one/services/${service}/run`);
      expect(run).toBe(
        `#!/bin/sh\nexec /etc/clipstack/triton ${suffix} ${ports.http} ${ports.grpc} ${ports.metrics}\n`,
      );
      expect(read("model_repository/image/all-in-one/services/embed/run")).toContain(
        `TRITON_GRPC_URLS=127.0.0.1:${ports.grpc} TRITON_MODEL_KIND=${modelKind} ;;`,
      );
      expect(read("model_repository/image/all-in-one/health")).toContain(
        ` ${service}) set -- "$@" http://127.0.0.1:${ports.http}${oipPaths.ready} ;;`,
      );
    },
  );

  test("starts Triton with valid options", async () => {
    const script = join(folder, "model_repository/image/triton");
    const repository = await mkdtemp(join(tmpdir(), "clipstack-image-models-"));
    for (const model of [
      "a_b_trt",
      "a_b_text_trt",
      "c_trt",
      "d_trt",
      "d_text_trt",
      "not_in_models_trt",
    ]) {
      await mkdir(join(repository, model), { recursive: true });
    }
    const env = {
      TRITON_SERVER: "tritonserver",
      TRITON_MODELS: "a-b,c,d:image,e:text",
      MODEL_REPOSITORY: repository,
      MODEL_CONFIG_NAME: "cpu",
    };
    const flags = await tritonFlagsOf("sh", [script, "_trt", "1", "2", "3"], env);
    await rm(repository, { recursive: true });
    expect(flags).toMatchObject({
      "model-repository": repository,
      "model-config-name": "cpu",
      "load-model": ["a_b_trt", "a_b_text_trt", "c_trt", "d_trt", "e_text_trt"],
      "http-port": 1,
      "grpc-port": 2,
      "metrics-port": 3,
      ...restrictControl("key"),
    });
  });

  test("checks the readiness of the embed server on its port", () => {
    const health = read("model_repository/image/all-in-one/health");
    expect(health).toContain(`\${PORT:-${embed}}${embedPaths.readyz}" ;;`);
  });
});

/** Returns the options with which a program starts `tritonserver`. */
async function tritonFlagsOf(program: string, args: readonly string[], env: NodeJS.ProcessEnv) {
  const bin = await mkdtemp(join(tmpdir(), "clipstack-image-"));
  try {
    const standIn = `#!/bin/sh\nprintf '%s\\n' "$@"\n`;
    await writeFile(join(bin, "tritonserver"), standIn, { mode: 0o755 });
    const { stdout } = spawnSync(program, args, {
      encoding: "utf8",
      env: { ...env, PATH: `${bin}:${process.env.PATH}` },
    });
    return parseTritonArgs(stdout.trim().split("\n"));
  } finally {
    await rm(bin, { recursive: true });
  }
}
