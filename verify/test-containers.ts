import type { z } from "zod";
import { type InspectedContainer, inspectedContainer } from "../artefact/docker-inspect.ts";

/** Declared container for tests, and the output of `docker inspect` for a container created from it. */

export const declaredBody = {
  name: "one-triton",
  image: `\${docker_image.triton.image_id}`,
  user: "1000:1000",
  env: ["NVIDIA_VISIBLE_DEVICES=0", "TRITON_MODEL_KIND=fp32", `API_KEY=\${var.key}`],
  command: ["tritonserver", "--model-repository=/models"],
  capabilities: { drop: ["ALL"] },
  read_only: true,
  security_opts: ["no-new-privileges:true"],
  restart: "unless-stopped",
  gpus: "device=0",
  ports: [
    { internal: 8000, external: 8010, ip: "127.0.0.1" },
    { internal: 8001, external: 8011, ip: "0.0.0.0" },
  ],
  healthcheck: {
    test: ["CMD", "curl", "-fsS", "http://localhost:8000/v2/health/ready"],
    interval: "5s",
    timeout: "4s",
    start_period: "2m0s",
    retries: 6,
  },
  shm_size: 1024,
  tmpfs: { "/tmp": "rw,nosuid,nodev,size=256m" },
  ulimit: [
    { name: "memlock", soft: -1, hard: -1 },
    { name: "stack", soft: 67_108_864, hard: 67_108_864 },
  ],
  networks_advanced: [{ name: "clipstack" }],
  volumes: [
    {
      host_path: `\${abspath("\${path.root}/../../../model_repository/openclip_vit_b32")}`,
      container_path: "/models/openclip_vit_b32",
      read_only: true,
    },
    { volume_name: "one-engines", container_path: "/engine-cache" },
  ],
  log_driver: "json-file",
  log_opts: { "max-file": "3", "max-size": "10m" },
  labels: [{ label: "clipstack.service", value: "triton" }],
  stop_timeout: 35,
} as const;

/** Folder of cdk.tf.json, which relative paths start from. */
export const moduleFolder = "/project/cdktf.out/stacks/one";

export const imageId = `sha256:${"ab".repeat(32)}`;

type Raw = z.input<typeof inspectedContainer>;

const seconds = (count: number) => count * 1_000_000_000;

/** Output of Docker 20.10, including its `null` for empty values. */
export function inspectedRaw(): Raw {
  return {
    Id: "c0".repeat(32),
    Name: "/one-triton",
    Image: imageId,
    RestartCount: 0,
    State: {
      Status: "running",
      ExitCode: 0,
      OOMKilled: false,
      Error: "",
      StartedAt: "2026-11-21T17:00:00.123456789Z",
      Health: { Status: "healthy", Log: [{ ExitCode: 0, Output: "" }] },
    },
    Config: {
      User: "1000:1000",
      Env: [
        "API_KEY=never-shown",
        "NVIDIA_VISIBLE_DEVICES=0",
        "TRITON_MODEL_KIND=fp32",
        "PATH=/usr/bin",
      ],
      Cmd: ["tritonserver", "--model-repository=/models"],
      Entrypoint: null,
      Labels: { "clipstack.service": "triton", "org.opencontainers.image.title": "Triton" },
      StopTimeout: 35,
      Healthcheck: {
        Test: ["CMD", "curl", "-fsS", "http://localhost:8000/v2/health/ready"],
        Interval: seconds(5),
        Timeout: seconds(4),
        StartPeriod: seconds(120),
        Retries: 6,
      },
    },
    HostConfig: {
      CapAdd: null,
      CapDrop: ["ALL"],
      ReadonlyRootfs: true,
      SecurityOpt: ["no-new-privileges:true"],
      RestartPolicy: { Name: "unless-stopped", MaximumRetryCount: 0 },
      Privileged: false,
      DeviceRequests: [{ Count: 0, DeviceIDs: ["0"], Capabilities: [["gpu"]] }],
      Devices: null,
      Runtime: "runc",
      PortBindings: {
        "8000/tcp": [{ HostIp: "127.0.0.1", HostPort: "8010" }],
        "8001/tcp": [{ HostIp: "0.0.0.0", HostPort: "8011" }],
      },
      PublishAllPorts: false,
      Memory: 0,
      ShmSize: 1024 * 2 ** 20,
      Tmpfs: { "/tmp": "rw,nosuid,nodev,size=256m" },
      Ulimits: [
        { Name: "stack", Soft: 67_108_864, Hard: 67_108_864 },
        { Name: "memlock", Soft: -1, Hard: -1 },
      ],
      Init: null,
      NetworkMode: "clipstack",
      PidMode: "",
      IpcMode: "private",
      LogConfig: { Type: "json-file", Config: { "max-file": "3", "max-size": "10m" } },
    },
    Mounts: [
      {
        Type: "bind",
        Source: "/project/model_repository/openclip_vit_b32",
        Destination: "/models/openclip_vit_b32",
        RW: false,
      },
      {
        Type: "volume",
        Name: "one-engines",
        Source: "/var/lib/docker/volumes/one-engines/_data",
        Destination: "/engine-cache",
        RW: true,
      },
    ],
    NetworkSettings: {
      Ports: {
        "8000/tcp": [{ HostIp: "127.0.0.1", HostPort: "8010" }],
        "8001/tcp": [
          { HostIp: "0.0.0.0", HostPort: "8011" },
          { HostIp: "::", HostPort: "8011" },
        ],
      },
      Networks: { clipstack: { Aliases: ["one-triton"] } },
    },
  };
}

/** The container, with something changed. */
export function inspected(change: (raw: Raw) => void = () => {}): InspectedContainer {
  const raw = inspectedRaw();
  change(raw);
  return inspectedContainer.parse(raw);
}

/** Sets fields by their dotted path, as `HostConfig.CapAdd`; `undefined` removes a field. */
export function setFields(value: object, fields: Readonly<Record<string, unknown>>): void {
  for (const [path, field] of Object.entries(fields)) {
    const names = path.split(".");
    const last = names.pop()!;
    const holder = names.reduce<Record<string, unknown>>(
      (inner, name) => inner[name] as Record<string, unknown>,
      value as Record<string, unknown>,
    );
    if (field === undefined) delete holder[last];
    else holder[last] = field;
  }
}
