import { describe, expect, test } from "vitest";
import type { ChartValues } from "../../constructs/kubernetes/chart-values.ts";
import { noHelm, objectOf, rejectionOf, type TestObject, template } from "./test-helm.ts";

/** Renders the Job of a bulk embedding. */

const base = { enabled: true, job: "s3://vectors/2026", source: "s3://photos/2026" } as const;
const onGpu = {
  model: { weights: "pvc", sha256: "a".repeat(64), pvc: { claimName: "w" } },
} as const;

const objects = (bulk: ChartValues["bulk"] = {}, more: ChartValues = {}) =>
  template({ embed: { enabled: false }, ...more, bulk: { ...base, ...bulk } });
const jobOf = (all: readonly TestObject[]) => all.find(({ kind }) => kind === "Job")!;
const job = (bulk?: ChartValues["bulk"], more?: ChartValues) => jobOf(objects(bulk, more));
const workerOf = ({ spec }: TestObject) => spec.template.spec.containers[0];
const env = (it: TestObject) =>
  Object.fromEntries(
    workerOf(it).env.map((v: { name: string; value?: string }) => [v.name, v.value]),
  );

describe.skipIf(noHelm !== "")(`bulk job${noHelm && ` (skipped: ${noHelm})`}`, () => {
  test("has a pod per worker, which forgives preemption and fails at once for wrong settings", () => {
    const { spec } = job({ workers: 8, retries: 2, maxHours: 3 });
    expect(spec).toMatchObject({
      completionMode: "Indexed",
      completions: 8,
      parallelism: 8,
      backoffLimitPerIndex: 2,
      activeDeadlineSeconds: 10_800,
      suspend: false,
    });
    expect(spec.podFailurePolicy.rules).toEqual([
      { action: "Ignore", onPodConditions: [{ type: "DisruptionTarget", status: "True" }] },
      {
        action: "FailJob",
        onExitCodes: { containerName: "bulk", operator: "In", values: [2] },
      },
    ]);
    expect(spec.template.spec.restartPolicy).toBe("Never");
  });

  test("gives a worker the memory for images and that of the process", () => {
    const it = job({ workers: 3, cores: 2, memoryMiB: 1000, processMemoryMiB: 500 });
    expect(workerOf(it).resources).toEqual({
      requests: { cpu: "2", memory: "1500Mi" },
      limits: { cpu: "2", memory: "1500Mi" },
    });
    expect(env(it)).toMatchObject({
      BULK_WORKERS: "3",
      BULK_MEMORY_MIB: "1000",
      INTRA_OP_THREADS: "2",
    });
  });

  test("another specification is another Job, because pods of a Job cannot change; suspend is not", () => {
    const name = (bulk: ChartValues["bulk"]) => job(bulk).metadata.name;
    expect(name({})).toBe(name({ suspend: true }));
    expect(name({})).not.toBe(name({ workers: 5 }));
  });

  test("leaves suspend to Kueue and labels the Job with its queue", () => {
    const it = job({ queueName: "team" });
    expect(it.metadata.labels).toMatchObject({ "kueue.x-k8s.io/queue-name": "team" });
    expect(it.spec).not.toHaveProperty("suspend");
  });

  test("a schedule makes a CronJob whose runs do not overlap", () => {
    const all = objects({ schedule: "0 3 * * *", suspend: true });
    const { spec } = objectOf(all, "CronJob", "clipstack-bulk");
    expect(spec).toMatchObject({ concurrencyPolicy: "Forbid", suspend: true });
    expect(spec.jobTemplate.spec.completions).toBe(4);
  });

  test("on GPUs, a Triton server beside each worker has the GPU", () => {
    const all = objects({ accelerator: "gpu" }, { ...onGpu, triton: { backend: "tensorrt" } });
    const it = jobOf(all);
    const sidecar = it.spec.template.spec.initContainers.at(-1);
    expect(sidecar).toMatchObject({ name: "triton", restartPolicy: "Always" });
    expect(sidecar.resources.limits).toMatchObject({ "nvidia.com/gpu": "1" });
    expect(workerOf(it).resources.limits).not.toHaveProperty("nvidia.com/gpu");
    expect(env(it)).toMatchObject({ BACKEND: "triton", TRITON_GRPC_URLS: "127.0.0.1:8001" });
    expect(objectOf(all, "ConfigMap", "clipstack-triton").data["deployed.pbtxt"]).toContain(
      'key: "fingerprint"',
    );
  });

  test("opens connections to DNS and the given addresses only", () => {
    const egress = [
      {
        to: [{ ipBlock: { cidr: "10.1.0.0/16" } }],
        ports: [{ protocol: "TCP" as const, port: 9000 }],
      },
    ];
    const { spec } = objectOf(objects({ egress }), "NetworkPolicy", "clipstack-bulk");
    expect(spec.policyTypes).toEqual(["Ingress", "Egress"]);
    expect(spec).not.toHaveProperty("ingress");
    const dns = { ports: ["UDP", "TCP"].map((protocol) => ({ port: 53, protocol })) };
    expect(spec.egress).toEqual([dns, ...egress]);
  });

  test.each(
    Object.entries<object>({
      "bulk.job is required with bulk.enabled": { bulk: { enabled: true } },
      "bulk.timeZone requires bulk.schedule": { bulk: { ...base, timeZone: "UTC" } },
      "model.sha256 is required with bulk.accelerator gpu: rows name the fingerprint of the model":
        {
          bulk: { ...base, accelerator: "gpu" },
          model: { weights: "pvc", pvc: { claimName: "w" } },
        },
      "quota.hard.pods must be at least 9 (maximum pods of embed, triton and bulk, plus those added by a rolling update), got 8":
        {
          bulk: { ...base, workers: 9 },
          quota: { enabled: true, hard: { pods: 8 } },
          embed: { enabled: false },
        },
    }),
  )("rejects %s", (message, values) => {
    expect(rejectionOf(values)).toBe(message);
  });
});
