import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { kubectlDeployment, kubectlPod } from "../../bench/src/test-kubectl.ts";
import { runExercise } from "./k8s-exercise.ts";
import { mayBeAway, rolloutExercise } from "./k8s-rollout.ts";
import { pathWith, startClipstack } from "./test-programs.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-rollout-"));
beforeAll(() => {
  symlinkSync(fileURLToPath(new URL("test-kubectl.mjs", import.meta.url)), join(folder, "kubectl"));
  vi.stubEnv("PATH", pathWith(folder));
});
const servers: Server[] = [];
afterAll(() => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true, force: true });
});

/** What goes wrong in the cluster. */
interface Faults {
  /** After the patch to the bad image. */
  readonly awayMs?: number;
  readonly patchFails?: boolean;
}

/** A Deployment of two pods with earlier versions, as many as it keeps. */
function cluster(faults: Faults = {}) {
  const home = mkdtempSync(join(folder, "cluster-"));
  const file = join(home, "cluster.json");
  const { uid, name } = kubectlDeployment.metadata;
  const { template } = kubectlDeployment.spec;
  const versions = [1, 2, 3].map((version) => ({ ...template, version }));
  const replicaSets = [...versions, template].map((it, index) => ({
    metadata: { name: `${name}-${index}`, uid: `mine-${index}`, ownerReferences: [{ uid }] },
    spec: { replicas: it === template ? 2 : 0, template: it },
    status: { replicas: it === template ? 2 : 0 },
  }));
  const managedFields = [
    { manager: "kubectl", operation: "Apply", fieldsV1: { "f:spec": { "f:template": {} } } },
  ];
  const pods = ["one", "two"].map((id) => ({
    ...kubectlPod,
    metadata: { ...kubectlPod.metadata, name: id, uid: id },
    spec: { ...kubectlPod.spec, containers: template.spec.containers },
  }));
  const deployment = {
    ...kubectlDeployment,
    metadata: { ...kubectlDeployment.metadata, managedFields },
  };
  const state = {
    deployment,
    replicaSets,
    pods,
    pod: kubectlPod,
    made: 0,
    awayUntil: 0,
    ...faults,
  };
  writeFileSync(file, JSON.stringify(state));
  const now = (): typeof state => JSON.parse(readFileSync(file, "utf8"));
  return {
    kubeconfig: join(home, "config"),
    now,
    /** What a user would miss. */
    kept: () => {
      const { deployment: it, replicaSets: sets } = now();
      return {
        template: it.spec.template,
        limit: it.spec.revisionHistoryLimit,
        owners: it.metadata.managedFields,
        versions: sets.map(({ metadata }) => metadata.uid),
      };
    },
  };
}

/** An embed server that answers the first `answers` requests, and keeps the others waiting. */
async function service(answers = Number.POSITIVE_INFINITY): Promise<string> {
  let asked = 0;
  const server = createServer((request, response) => {
    request.resume();
    if (++asked <= answers) request.on("end", () => response.end("{}"));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  servers.push(server);
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Do the exercise; `onStep` may interrupt it. */
function rollout(
  kubeconfig: string,
  url: string,
  onStep: (line: string, interrupt: () => void) => void = () => {},
) {
  const { name: deployment, namespace } = kubectlDeployment.metadata;
  const controller = new AbortController();
  return runExercise(rolloutExercise, {
    target: { access: { kubeconfig }, namespace, deployment, url },
    images: [{ bytes: new Uint8Array([1]), contentType: "image/jpeg" }],
    // the controllers of the stand-in act at once; all exercises go on at a time
    ratePerSecond: 10,
    signal: controller.signal,
    onStep: (line) => onStep(line, () => controller.abort()),
  });
}

const timeout = 120_000;
const toBadImage = "rolling update to an image that is not there";

describe.concurrent("the rollout exercise", () => {
  test("leaves the template, its owners and the versions to roll back to as they were", {
    timeout,
  }, async () => {
    const { kubeconfig, kept } = cluster();
    const before = kept();
    const record = await rollout(kubeconfig, await service());
    expect(record.checks.filter(({ passed }) => !passed)).toEqual([]);
    expect(kept()).toEqual(before);
  });

  test("goes through where the API server is away for a moment", { timeout }, async () => {
    const { kubeconfig, kept } = cluster({ awayMs: 1_500 });
    const before = kept();
    const record = await rollout(kubeconfig, await service());
    expect(record.passed).toBe(true);
    expect(kept()).toEqual(before);
  });

  test("restores, and says what failed, where the API server is away for longer", {
    timeout,
  }, async () => {
    const { kubeconfig, kept } = cluster({ awayMs: 18_000 });
    const before = kept();
    const record = await rollout(kubeconfig, await service());
    expect(record.checks.map(({ claim, passed }) => [claim, passed])).toEqual([
      ["the exercise goes through", false],
      ["the cluster is as it was", true],
    ]);
    expect(kept()).toEqual(before);
  });

  test("is on record where the cluster refuses the change", { timeout }, async () => {
    const { kubeconfig, kept } = cluster({ patchFails: true });
    const before = kept();
    const record = await rollout(kubeconfig, await service());
    expect(record.passed).toBe(false);
    expect(record.checks[0]?.message).toContain("failed calling webhook");
    expect(kept()).toEqual(before);
  });

  test("restores when it is interrupted, and says so at once, also while the service hangs", {
    timeout,
  }, async () => {
    const { kubeconfig, kept } = cluster();
    const before = kept();
    const lines: string[] = [];
    const interrupted = rollout(kubeconfig, await service(2), (line, interrupt) => {
      lines.push(line);
      if (line.includes(toBadImage)) interrupt();
    });
    await expect(interrupted).rejects.toThrow("the cluster is as it was");
    const at = lines.findIndex((line) => line.includes(toBadImage));
    expect(lines[at + 1]).toMatch(/^interrupted: /);
    expect(kept()).toEqual(before);
  });

  test.each(["SIGINT", "SIGHUP"] as const)("restores at %s", { timeout }, async (signal) => {
    const { kubeconfig, kept, now } = cluster();
    const before = kept();
    const reports = mkdtempSync(join(folder, "reports-"));
    const { child, done } = startClipstack([
      ...["k8s", "rollout", "--kubeconfig", kubeconfig, "--namespace", "clipstack"],
      ...["--url", await service(), "--report", reports],
    ]);
    const isBad = () => now().deployment.metadata.managedFields[0]?.manager !== "kubectl";
    while (!isBad() && child.exitCode === null) await sleep(50);
    child.kill(signal);
    // a shell and the terminal both say that the terminal is gone
    if (signal === "SIGHUP") child.kill(signal);
    expect(await done).toMatchObject({
      code: 130,
      stderr: expect.stringContaining("clipstack: interrupted; the cluster is as it was"),
    });
    expect(kept()).toEqual(before);
  });
});

test.each([
  [{ maxUnavailable: 0, maxSurge: 1 }, 2, 0],
  [{ maxUnavailable: "25%", maxSurge: "25%" }, 8, 2],
  [{ maxUnavailable: "25%", maxSurge: "25%" }, 2, 0],
  [{ maxUnavailable: "25%", maxSurge: 0 }, 2, 1],
])("with %j, of %d pods %d may be away", (rollingUpdate, replicas, away) => {
  expect(mayBeAway({ strategy: { rollingUpdate } }, replicas)).toBe(away);
});
