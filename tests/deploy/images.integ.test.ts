import { mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { embedPaths, embedResponse } from "../../contract/embed-api.ts";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { defaultModel, modelCatalogue } from "../../contract/models/index.ts";
import { oipPaths } from "../../contract/oip-paths.ts";
import { embedPort, hostPorts, tritonPorts } from "../../contract/ports.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { picture } from "../../inference/preprocess/test-images.ts";
import packageJson from "../../inference-image/package.json" with { type: "json" };
import { sha256Of } from "../../model-tools/files/model-info.ts";
import { tinyModel } from "../../model-tools/generate/test-model.ts";
import { command, succeed, testDocker } from "./test-docker.ts";
import {
  buildImage,
  buildTimeoutMs,
  keptImage,
  nodeImage,
  startContainer,
  type TestContainer,
  weightsContext,
} from "./test-image.ts";

const fp32Name = tritonModelName(defaultModel, "fp32");

const root = fileURLToPath(new URL("../../", import.meta.url));
const { docker, missing } = await testDocker();

/** Photo with a long decoding time. */
const largePicture = picture("jpeg", { width: 2400, height: 1800 });
const images: string[] = [];
let container: TestContainer | undefined;
let embedImage: string;
/** Context of the images with models of a few kilobytes. */
let context: string;
/** Two models with images, one of them with texts. */
const dinov2 = modelCatalogue.get("dinov2-small")!;
const models = [defaultModel, dinov2];

async function build(folder: string, file: string, args: Readonly<Record<string, string>>) {
  const { image, outcome } = await buildImage(docker, {
    context: folder,
    file: join(root, file),
    args,
  });
  if (outcome.code === 0) images.push(image);
  return { image, outcome };
}

async function built(folder: string, file: string, args: Readonly<Record<string, string>>) {
  const { image, outcome } = await build(folder, file, args);
  if (outcome.code !== 0) throw new Error(outcome.output);
  return image;
}

async function start(options: Parameters<typeof startContainer>[1]): Promise<TestContainer> {
  container = await startContainer(docker, options);
  return container;
}

const weights = async (): Promise<string> =>
  `--volume=${await tinyModel()}:/models/${fp32Name}/1/model.onnx:ro`;

async function embed(address: string, image: Buffer, spec = defaultModel): Promise<number> {
  const response = await fetch(`http://${address}${embedPaths.embed}?model=${spec.name}`, {
    method: "POST",
    headers: { "content-type": "image/jpeg" },
    body: new Uint8Array(image),
  });
  const { embeddings } = embedResponse.parse(await response.json());
  expect(embeddings[0]).toHaveLength(spec.embedding.width);
  return response.status;
}

async function embedText(address: string): Promise<number> {
  const response = await fetch(`http://${address}${embedPaths.embedText}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ texts: ["dunes"] }),
  });
  const { model, embeddings } = embedResponse.parse(await response.json());
  expect(model).toBe(defaultModel.name);
  expect(embeddings[0]).toHaveLength(defaultModel.embedding.width);
  return response.status;
}

/** Stops a container while it processes requests. @returns outcome of the requests and the exit code */
async function stopUnderLoad(of: TestContainer, address: string) {
  const large = await largePicture;
  await embed(address, large);
  const sent = 16;
  let open = sent;
  const answers = Promise.allSettled(
    Array.from({ length: sent }, () =>
      embed(address, large).finally(() => {
        open -= 1;
      }),
    ),
  );
  // waits until all are accepted
  for (const until = Date.now() + 60_000; Date.now() < until; await sleep(10)) {
    if ((await pendingImages(address)) + sent - open >= sent) break;
  }
  const openAtStop = open;
  const startedAt = Date.now();
  const code = await of.stop(40);
  const seconds = (Date.now() - startedAt) / 1000;
  const lost = (await answers).filter(({ status }) => status === "rejected");
  return { code, seconds, openAtStop, lost };
}

/** Number of accepted images without a response. */
async function pendingImages(address: string): Promise<number> {
  const text = await (await fetch(`http://${address}${embedPaths.metrics}`)).text();
  return Number(new RegExp(`^${embedMetrics.pendingImages} (\\d+)$`, "m").exec(text)?.[1]);
}

async function sizeOf(image: string): Promise<number> {
  return Number(await docker.run("image", "inspect", "--format", "{{.Size}}", image));
}

/** Paths of all files of an image, without the leading slash. */
async function filesOf(image: string): Promise<ReadonlySet<string>> {
  const name = await docker.run("create", image);
  const archive = join(context, "image.tar");
  try {
    await docker.run("export", "--output", archive, name);
    const list = await succeed("tar", ["--list", "--file", archive]);
    return new Set(list.split("\n").filter((path) => path !== "" && !path.endsWith("/")));
  } finally {
    await docker.run("rm", name);
    await rm(archive, { force: true });
  }
}

describe.skipIf(missing !== "")(`images${missing && ` (skipped: ${missing})`}`, () => {
  beforeAll(async () => {
    context = await weightsContext(models);
    embedImage = await built(root, "inference-image/Dockerfile", {
      NODE_IMAGE: nodeImage,
      REVISION: "abc",
    });
  }, buildTimeoutMs);
  afterEach(async () => {
    await container?.remove();
    container = undefined;
  });
  afterAll(async () => {
    // keeps the build cache
    for (const image of images) await docker.run("image", "rm", "--no-prune", image);
    if (context !== undefined) await rm(context, { recursive: true, force: true });
  });

  describe("embed", () => {
    test("adds less than 260 MB to its base", async () => {
      const megabytes = ((await sizeOf(embedImage)) - (await sizeOf(nodeImage))) / 1e6;
      console.log(`embed image: ${megabytes.toFixed(1)} MB besides ${nodeImage}`);
      expect(megabytes).toBeLessThan(260);
    });

    test("has OCI labels", async () => {
      const labels = await docker.run(
        "image",
        "inspect",
        "--format",
        "{{json .Config.Labels}}",
        embedImage,
      );
      expect(JSON.parse(labels)).toMatchObject({
        "org.opencontainers.image.title": "clipstack embed server",
        "org.opencontainers.image.licenses": "Apache-2.0",
        "org.opencontainers.image.version": packageJson.version,
        "org.opencontainers.image.revision": "abc",
        "org.opencontainers.image.base.name": nodeImage,
      });
    });

    test("holds the compiled server and the libraries of its platform, and nothing that builds or tests", async () => {
      const base = await filesOf(nodeImage);
      const files = await filesOf(embedImage);
      const added = [...files].filter((path) => !base.has(path));
      expect(added.filter((path) => !path.startsWith("app/"))).toEqual([]);
      expect(added).toContain("app/dist/main.js");
      expect(added).toContain("app/dist/THIRD-PARTY-LICENSES.txt");
      expect(added.filter((path) => /\.(ts|map|cc|gyp)$|\btest\b|\.npm\//.test(path))).toEqual([]);

      const native = added.filter((path) => /\.(node|so(\.[\d.]+)?|dll|dylib)$/.test(path)).sort();
      const arch = await docker.run(
        "image",
        "inspect",
        "--format",
        "{{.Architecture}}",
        embedImage,
      );
      const platform = `linux-${arch === "amd64" ? "x64" : arch}`;
      const [os, cpu] = platform.split("-");
      expect(native).toEqual([
        expect.stringMatching(`@img/sharp-libvips-${platform}/.+\\.so`),
        expect.stringMatching(`@img/sharp-${platform}/.+\\.node$`),
        expect.stringMatching(`onnxruntime-node/bin/.+/${os}/${cpu}/libonnxruntime\\.so`),
        expect.stringMatching(`onnxruntime-node/bin/.+/${os}/${cpu}/.+\\.node$`),
      ]);

      const tools = ["npm", "npx", "corepack", "yarn", "gcc", "make", "python3", "git"];
      expect(
        tools.filter((name) => files.has(`usr/local/bin/${name}`) || files.has(`usr/bin/${name}`)),
      ).toEqual([]);
    });

    test("becomes healthy without privileges and with a read-only root, and answers accepted requests when stopped", async () => {
      const options = ["--env=ALLOW_ANONYMOUS=true", await weights()];
      const server = await start({ image: embedImage, ports: [embedPort], options });
      await server.healthy();
      const identity = await server.exec(
        "node",
        "-p",
        "[process.getuid(), process.getgid()].join()",
      );
      expect(identity.stdout.trim()).toBe("1000,1000");
      expect((await server.exec("touch", "/app/file")).output).toContain("Read-only file system");

      const outcome = await stopUnderLoad(server, await server.address(embedPort));
      expect(outcome.openAtStop).toBeGreaterThan(0);
      expect(outcome).toMatchObject({ code: 0, lost: [] });
    });

    test("is the Triton emulator, with its health check at the port of its options", async () => {
      const port = 9000;
      const server = await start({
        image: embedImage,
        ports: [port, tritonPorts.grpc],
        options: [`--volume=${context}:/models:ro`],
        command: [
          ...["tritonserver", "--model-repository=/models", `--http-port=${port}`],
          ...["--model-control-mode=explicit", `--load-model=${fp32Name}`],
        ],
      });
      await server.healthy();
      expect((await fetch(`http://${await server.address(port)}${oipPaths.ready}`)).status).toBe(
        200,
      );
      const triton = openGrpcTransport({ target: await server.address(tritonPorts.grpc) });
      try {
        expect(await triton.serverMetadata({ timeoutMs: 5_000 })).toMatchObject({
          version: packageJson.version,
        });
      } finally {
        await triton.close();
      }
      expect(await server.stop(40)).toBe(0);
    });

    test("becomes unhealthy and exits if its model is missing", async () => {
      const server = await start({ image: embedImage, options: ["--env=ALLOW_ANONYMOUS=true"] });
      await expect(server.healthy()).rejects.toThrow("/models/openclip_vit_b32/1/model.onnx");
    });

    test("exits at once when stopped while loading", async () => {
      const server = await start({
        image: embedImage,
        options: ["--env=ALLOW_ANONYMOUS=true", await weights()],
      });
      // before that Node starts, and as process 1 it ignores signals
      for (const until = Date.now() + 60_000; Date.now() < until; await sleep(20)) {
        if ((await server.log()) !== "") break;
      }
      expect(await server.stop(20)).not.toBe(137);
    });

    test("reports invalid settings in one line and exits with code 2", async () => {
      const { code, output } = await command("docker", [
        ...[
          "--host",
          docker.endpoint,
          "run",
          "--rm",
          "--env=ALLOW_ANONYMOUS=true",
          "--env=PORT=http",
        ],
        embedImage,
      ]);
      expect({ code, output }).toEqual({
        code: 2,
        output: "PORT must be a whole number, 1 to 65535, got 'http'\n",
      });
    });
  });

  describe("weights", () => {
    test("contains the model", async () => {
      const image = await built(context, "model_repository/image/Dockerfile.weights", {
        IMAGE: embedImage,
      });
      const server = await start({
        image,
        ports: [embedPort],
        options: ["--env=ALLOW_ANONYMOUS=true"],
      });
      await server.healthy();
      expect(await embed(await server.address(embedPort), await picture())).toBe(200);
      const { stdout } = await server.exec("sh", "-c", `ls /models /models/${fp32Name}/1`);
      // other models of the context are not in the image
      expect(stdout.trim().split("\n")).toEqual([
        ...["/models:", "models.json", fp32Name, tritonModelName(defaultModel, "trt"), ""],
        ...[`/models/${fp32Name}/1:`, "model.onnx"],
      ]);
    });

    test("fails on another checksum", async () => {
      const { outcome } = await build(context, "model_repository/image/Dockerfile.weights", {
        IMAGE: embedImage,
        MODEL_SHA256: "0".repeat(64),
      });
      expect(outcome.code).not.toBe(0);
      expect(outcome.output).toMatch(
        /model_repository\/openclip_vit_b32\/1\/model.onnx: sha256 must be 0{64}, got [0-9a-f]{64}/,
      );
    });
  });

  describe("all in one", () => {
    const { embed: embedOnHost, tritonOnnx, tritonTrt } = hostPorts;
    const allowed = ["--env=ALLOW_ANONYMOUS=true"];
    let image: string;
    beforeAll(async () => {
      image = await built(context, "model_repository/image/Dockerfile.all-in-one", {
        EMBED_IMAGE: embedImage,
        TRITON_IMAGE: embedImage,
        TRITON_SERVER: "emulator",
        WEIGHTS: "image",
        MODELS: models.map(({ name }) => name).join(","),
      });
    }, buildTimeoutMs);

    test("serves two models with images and one with texts on the ports of all three services, restarts a service that exits, and answers accepted requests when stopped", async () => {
      const ports = [
        embedOnHost,
        tritonOnnx.http,
        tritonOnnx.metrics,
        tritonTrt.http,
        tritonTrt.metrics,
      ];
      const server = await start({ image, ports, options: allowed });
      await server.healthy();
      const address = await server.address(embedOnHost);
      for (const spec of models) expect(await embed(address, await picture(), spec)).toBe(200);
      expect(await embedText(address)).toBe(200);
      for (const { http, metrics } of [tritonOnnx, tritonTrt]) {
        expect((await fetch(`http://${await server.address(http)}${oipPaths.ready}`)).status).toBe(
          200,
        );
        const text = await (await fetch(`http://${await server.address(metrics)}/metrics`)).text();
        expect(text).toContain("nv_inference_request_success");
        const index = `http://${await server.address(http)}/v2/repository/index`;
        expect((await fetch(index, { method: "POST" })).status).toBe(403);
      }
      // each Triton server serves every tower; the embed server is a gateway to the first
      const asked = await (
        await fetch(`http://${await server.address(tritonOnnx.metrics)}/metrics`)
      ).text();
      for (const name of [fp32Name, tritonModelName(defaultModel, "text"), "dinov2_small"]) {
        expect(asked).toContain(`nv_inference_request_success{model="${name}",version="1"} 1\n`);
      }
      const index = `http://${await server.address(tritonTrt.http)}/v2/models`;
      for (const name of [
        "openclip_vit_b32_trt",
        "openclip_vit_b32_text_trt",
        "dinov2_small_trt",
      ]) {
        expect((await fetch(`${index}/${name}/ready`)).status, name).toBe(200);
      }

      const pidOf = async (service: string) =>
        (await server.exec("s6-svstat", "-o", "pid", `/tmp/services/${service}`)).stdout.trim();
      for (const service of ["embed", "triton-onnx", "triton-trt"]) {
        const pid = await pidOf(service);
        expect(pid).toMatch(/^\d+$/);
        await server.exec("node", "-e", `process.kill(${pid}, "SIGKILL")`);
        for (const until = Date.now() + 60_000; Date.now() < until; await sleep(200)) {
          const again = await pidOf(service);
          if (
            again !== pid &&
            again !== "-1" &&
            (await server.exec("/etc/clipstack/health")).code === 0
          )
            break;
        }
        expect(await pidOf(service)).not.toBe(pid);
        expect(await server.exec("/etc/clipstack/health")).toMatchObject({ code: 0 });
      }

      const outcome = await stopUnderLoad(server, address);
      expect(outcome.openAtStop).toBeGreaterThan(0);
      expect(outcome).toMatchObject({ code: 0, lost: [] });
      expect(outcome.seconds).toBeLessThan(40);
    });

    test("starts the selected services", async () => {
      const server = await start({
        image,
        ports: [embedOnHost],
        options: [...allowed, "--env=SERVICES=embed"],
      });
      await server.healthy();
      expect((await server.exec("ls", "/tmp/services")).stdout).toBe("embed\n");
      expect(await embed(await server.address(embedOnHost), await picture())).toBe(200);
      expect(await server.stop(40)).toBe(0);
    });

    test("downloads its weights from a URL, and forwards the ports of its Triton server over SSH", async () => {
      const bare = await built(context, "model_repository/image/Dockerfile.all-in-one", {
        EMBED_IMAGE: embedImage,
        TRITON_IMAGE: embedImage,
        TRITON_SERVER: "emulator",
        SSHD: "openssh-server",
      });
      const program =
        'require("node:http").createServer((_, out) => require("node:fs").createReadStream("/model.onnx").pipe(out)).listen(8080)';
      const file = await tinyModel();
      const source = await docker.run(
        ...["run", "--detach", `--volume=${file}:/model.onnx:ro`, "--entrypoint=node"],
        ...[embedImage, "-e", program],
      );
      const keys = await mkdtemp(join(tmpdir(), "clipstack-keys-"));
      try {
        const key = join(keys, "key");
        await succeed("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-f", key]);
        const networks = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}";
        const ip = await docker.run("inspect", "--format", networks, source);
        const sha256 = await sha256Of(file);
        const folder = `/models/${fp32Name}/1`;
        const server = await start({
          image: bare,
          ports: [embedOnHost, 2222],
          options: [
            "--env=API_KEY=key-of-the-container",
            "--env=SERVICES=embed,triton-onnx,triton-trt,sshd",
            "--env=SSHD_PORT=2222",
            `--env=PUBLIC_KEY=${(await readFile(`${key}.pub`, "utf8")).trim()}`,
            `--env=WEIGHTS_URLS=${fp32Name}/1/model.onnx=http://${ip}:8080/model.onnx#sha256=${sha256}`,
            `--volume=${folder}`,
          ],
        });
        await server.healthy();
        const found = (await server.exec("sha256sum", `${folder}/model.onnx`)).stdout;
        expect(found).toContain(sha256);
        expect((await fetch(`http://${await server.address(embedOnHost)}/v1/models`)).status).toBe(
          401,
        );
        const user = (await server.exec("id", "-un")).stdout.trim();
        const port = (await server.address(2222)).split(":").at(-1);
        const ssh = `ssh -F none -i ${key} -p ${port} -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null`;
        for (const inner of [tritonOnnx.http, tritonTrt.http]) {
          const request = `printf 'GET ${oipPaths.ready} HTTP/1.0\\r\\n\\r\\n' | ${ssh} -W 127.0.0.1:${inner} ${user}@127.0.0.1`;
          expect((await succeed("sh", ["-c", request])).split("\r\n")[0]).toMatch(/ 200 /);
        }
      } finally {
        await docker.run("rm", "--force", source);
        await rm(keys, { recursive: true });
      }
    });

    test.each([
      [
        ["--env=SERVICES=embed,trt"],
        "SERVICES must be some of embed, sshd, triton-onnx, triton-trt, got 'trt'\n",
      ],
      [
        ["--env=PORT=http", "--env=SERVICES=embed", ...allowed],
        "PORT must be a whole number, 1 to 65535, got 'http'\n",
      ],
    ])("ends with exit code 2 on wrong settings: %s", async (options, line) => {
      const { code, output } = await command("docker", [
        ...["--host", docker.endpoint, "run", "--rm", ...options],
        image,
      ]);
      expect(output).toContain(line);
      expect(code).toBe(2);
    });
  });

  describe.skipIf(process.arch !== "x64")("a real tritonserver (its wheel is for x86-64)", () => {
    let tritonImage = "";
    let missingPackages = "";
    beforeAll(async () => {
      try {
        tritonImage = await keptImage(docker, "triton");
      } catch (error) {
        const last = String(error).trim().split("\n").at(-1);
        missingPackages = `not here: its image cannot be built: ${last}`;
      }
    }, buildTimeoutMs);
    beforeEach(({ skip }) => skip(missingPackages !== "", missingPackages));

    test("contains the model repository and the packages of the Python model", async () => {
      const image = await built(context, "model_repository/image/Dockerfile.triton", {
        TRITON_IMAGE: tritonImage,
        WEIGHTS: "image",
      });
      const server = await start({
        image,
        ports: [tritonPorts.http],
        options: ["--shm-size=1g"],
        command: [
          ...["tritonserver", "--model-repository=/models"],
          ...["--model-control-mode=explicit", `--load-model=${fp32Name}`],
          ...["--load-model=openclip_vit_b32_preprocess", "--disable-auto-complete-config"],
        ],
      });
      await server.healthy();
      const address = await server.address(tritonPorts.http);
      for (const model of [fp32Name, "openclip_vit_b32_preprocess"]) {
        expect((await fetch(`http://${address}/v2/models/${model}/ready`)).status).toBe(200);
      }
      expect(await server.stop(40)).toBe(0);
    });

    test("runs beside the embed server in one container and answers its accepted requests", async () => {
      const image = await built(context, "model_repository/image/Dockerfile.all-in-one", {
        EMBED_IMAGE: embedImage,
        TRITON_IMAGE: tritonImage,
        WEIGHTS: "image",
      });
      const { embed: port, tritonOnnx } = hostPorts;
      const server = await start({
        image,
        ports: [port, tritonOnnx.http],
        options: ["--env=ALLOW_ANONYMOUS=true", "--shm-size=1g"],
      });
      await server.healthy();
      const metadata = await fetch(`http://${await server.address(tritonOnnx.http)}/v2`);
      expect(await metadata.json()).toMatchObject({ name: "triton", version: "2.51.0" });

      const outcome = await stopUnderLoad(server, await server.address(port));
      expect(outcome.openAtStop).toBeGreaterThan(0);
      expect(outcome).toMatchObject({ code: 0, lost: [] });
    });
  });
});

/** `CLIPSTACK_BUILDX`: path of the program, as printed by `.ci/docker-buildx`; default: Docker's plugin. */
const buildx = process.env.CLIPSTACK_BUILDX?.split(" ") ?? ["docker", "buildx"];
const noBuildx = (await command(buildx[0]!, [...buildx.slice(1), "version"])).code !== 0;

describe.skipIf(noBuildx)(`bake file${noBuildx ? " (skipped: no buildx)" : ""}`, () => {
  test("describes every image, for amd64 and arm64 where that is possible", async () => {
    const plan = JSON.parse(
      await succeed(buildx[0]!, [...buildx.slice(1), "bake", "--print", "all", "embed-release"], {
        cwd: root,
      }),
    ) as { readonly target: Readonly<Record<string, BakeTarget>> };
    const { target } = plan;
    expect(Object.keys(target).sort()).toEqual([
      "all-in-one",
      "all-in-one-emulator",
      "embed",
      "embed-gpu",
      "embed-release",
      "embed-weights",
      "triton",
    ]);
    expect(target["embed-release"]?.platforms).toEqual(["linux/amd64", "linux/arm64"]);
    for (const [name, { context: folder, dockerfile, args }] of Object.entries(target)) {
      const text = await readFile(join(root, folder === "." ? "" : folder, dockerfile), "utf8");
      const known = [...text.matchAll(/^ARG (\w+)/gm)].map(([, arg]) => arg);
      expect(known, name).toEqual(expect.arrayContaining(Object.keys(args)));
    }
  });
});

interface BakeTarget {
  readonly context: string;
  readonly dockerfile: string;
  readonly args: Readonly<Record<string, string>>;
  readonly platforms?: readonly string[];
}
