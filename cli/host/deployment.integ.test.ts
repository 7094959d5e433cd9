import { randomBytes } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { declaredContainer } from "../../artefact/declared-container.ts";
import { testDocker } from "../../tests/deploy/test-docker.ts";
import { nodeImage } from "../../tests/deploy/test-image.ts";
import { checkContainer } from "../../verify/checks/container.ts";
import { checkContainerState } from "../../verify/checks/start.ts";
import { inspectContainers } from "./deployment.ts";

const { docker, missing } = await testDocker();
/** NVIDIA's runtime, or its replacement for tests. */
const gpu =
  missing === "" &&
  (await docker.run("info", "--format", "{{json .Runtimes}}")).includes('"nvidia"');

const name = `clipstack-test-${randomBytes(4).toString("hex")}`;
const folder = "/nowhere/cdktf.out/stacks/one";

const declared = declaredContainer.parse({
  name,
  user: "1000:1000",
  env: ["NVIDIA_VISIBLE_DEVICES=0", "HOST=127.0.0.1"],
  command: ["node", "-e", "setInterval(() => {}, 1000)"],
  capabilities: { drop: ["ALL"], add: ["CAP_CHOWN"] },
  read_only: true,
  security_opts: ["no-new-privileges:true"],
  restart: "unless-stopped",
  ...(gpu ? { gpus: "device=0" } : {}),
  ports: [{ internal: 8000, ip: "127.0.0.1" }],
  healthcheck: { test: ["CMD-SHELL", "true"], interval: "1s", timeout: "30s", retries: 3 },
  memory: 256,
  shm_size: 128,
  tmpfs: { "/tmp": "rw,nosuid,nodev,size=64m" },
  ulimit: [{ name: "stack", soft: 67_108_864, hard: 67_108_864 }],
  init: true,
  volumes: [{ volume_name: name, container_path: "/data", read_only: true }],
  log_driver: "json-file",
  log_opts: { "max-size": "10m" },
  labels: [{ label: "clipstack.service", value: "triton" }],
  stop_timeout: 35,
});

/** Arguments of `docker run` for it. */
const options = [
  "--user=1000:1000",
  ...["--env=NVIDIA_VISIBLE_DEVICES=0", "--env=HOST=127.0.0.1"],
  ...["--cap-drop=ALL", "--cap-add=CHOWN"],
  "--read-only",
  "--security-opt=no-new-privileges",
  "--restart=unless-stopped",
  ...(gpu ? ["--gpus=device=0"] : []),
  "--publish=127.0.0.1::8000",
  ...["--health-cmd=true", "--health-interval=1s", "--health-timeout=30s", "--health-retries=3"],
  ...["--memory=256m", "--shm-size=128m", "--tmpfs=/tmp:rw,nosuid,nodev,size=64m"],
  "--ulimit=stack=67108864:67108864",
  "--init",
  `--volume=${name}:/data:ro`,
  ...["--log-driver=json-file", "--log-opt=max-size=10m"],
  "--label=clipstack.service=triton",
  "--stop-timeout=35",
];

describe.skipIf(missing !== "")(
  `a container of a real engine against its declaration${missing && ` (skipped: ${missing})`}`,
  () => {
    let port = 0;

    beforeAll(async () => {
      const words = ["--name", name, ...options, nodeImage, ...declared.command];
      await docker.run("run", "--detach", ...words);
      port = Number((await docker.run("port", name, "8000")).split(":").at(-1));
    });
    afterAll(async () => {
      await docker.run("rm", "--force", "--volumes", name).catch(() => undefined);
      await docker.run("volume", "rm", name).catch(() => undefined);
    });

    async function findingsOf(changes: Partial<typeof declared> = {}): Promise<readonly string[]> {
      const ports = declared.ports.map((it) => ({ ...it, external: port }));
      const block = {
        address: "docker_container.one",
        declared: { ...declared, ports, ...changes },
      };
      const inspection = await inspectContainers(docker.endpoint, [name, `${name}-none`]);
      const state = { ids: new Map<string, string>(), names: new Map<string, string>() };
      return checkContainer("one", block, inspection, state, folder).map(
        ({ outcome, message }) => `${outcome}: ${message}`,
      );
    }

    test("passes while it is as declared", async () => {
      expect(await findingsOf()).toEqual([expect.stringMatching(/^pass: \d+ aspects match/)]);
    });

    test("fails on undeclared options", async () => {
      expect(await findingsOf({ user: "0:0", shm_size: 64 })).toEqual([
        "fail: user must be 0:0, got 1000:1000",
        "fail: shared memory must be 64 MiB, got 128 MiB",
      ]);
    });

    test.skipIf(!gpu)("fails on another GPU than was declared", async () => {
      expect(await findingsOf({ gpus: "device=1" })).toEqual([
        "fail: GPU request must be device 1, got device 0",
      ]);
    });

    test("fails on manual changes", async () => {
      await docker.run("update", "--restart=no", name);
      expect(await findingsOf()).toEqual(["fail: restart policy must be unless-stopped, got no"]);
      await docker.run("update", "--restart=unless-stopped", name);
    });

    test("reports a missing container and an unreachable engine", async () => {
      const gone = { address: "docker_container.two", declared };
      const none = await inspectContainers(docker.endpoint, [`${name}-none`]);
      expect(checkContainerState("one", gone, none).message).toBe(`container '${name}' must exist`);
      expect(await inspectContainers("unix:///nowhere/docker.sock", [name])).toEqual({
        ok: false,
        message: expect.stringContaining("Docker does not respond at unix:///nowhere/docker.sock"),
      });
    });
  },
);
