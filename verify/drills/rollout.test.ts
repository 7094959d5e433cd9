import { mkdtempSync, rmSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, describe, expect, test } from "vitest";
import { startClipstack } from "../../cli/test-programs.ts";
import { type DeploymentFaults, deploymentCluster } from "../cluster/test-deployment-cluster.ts";
import { kubectlDeployment } from "../test-kubectl.ts";
import { maxUnavailablePods, rolloutDrill } from "./rollout.ts";
import { runClusterDrill } from "./run-cluster-drill.ts";

const folder = mkdtempSync(join(tmpdir(), "clipstack-rollout-"));
const closers: (() => void)[] = [];
afterAll(() => {
  for (const close of closers) close();
  rmSync(folder, { recursive: true, force: true });
});

async function cluster(faults: DeploymentFaults = {}) {
  const it = await deploymentCluster(faults);
  closers.push(it.close);
  return it;
}

/** Starts an embed server that responds to the first `responses` requests and hangs on later ones. */
async function service(responses = Number.POSITIVE_INFINITY): Promise<string> {
  let requests = 0;
  const server: Server = createServer((request, response) => {
    request.resume();
    if (++requests <= responses) request.on("end", () => response.end("{}"));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  closers.push(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** Runs the drill; `onStep` may interrupt it. */
function rollout(
  kubeconfig: string,
  url: string,
  onStep: (line: string, interrupt: () => void) => void = () => {},
) {
  const { name: deployment, namespace } = kubectlDeployment.metadata;
  const controller = new AbortController();
  return runClusterDrill(rolloutDrill, {
    target: { access: { kubeconfig }, namespace, deployment, url },
    images: [{ bytes: new Uint8Array([1]), contentType: "image/jpeg" }],
    // the drills of this file run concurrently
    ratePerSecond: 10,
    concurrency: 1,
    repository: import.meta.dirname,
    signal: controller.signal,
    onStep: (line) => onStep(line, () => controller.abort()),
  });
}

const toBadImage = "rolling update to a missing image";

describe.concurrent("the rollout drill", () => {
  test("restores the template, the field owners and the revisions", async () => {
    const { kubeconfig, restorable } = await cluster();
    const before = restorable();
    const record = await rollout(kubeconfig, await service());
    expect(record.checks.filter(({ passed }) => !passed)).toEqual([]);
    expect(restorable()).toEqual(before);
  });

  test("completes despite a short outage of the API server", async () => {
    const { kubeconfig, restorable } = await cluster({ awayMs: 1_500 });
    const before = restorable();
    const record = await rollout(kubeconfig, await service());
    expect(record.passed).toBe(true);
    expect(restorable()).toEqual(before);
  });

  test("restores the cluster and records the failure after a longer outage of the API server", async () => {
    const { kubeconfig, restorable, comeBack } = await cluster({
      awayMs: Number.POSITIVE_INFINITY,
    });
    const before = restorable();
    const record = await rollout(kubeconfig, await service(), (line) => {
      if (line.includes("✘ the drill completes")) comeBack();
    });
    expect(record.checks.map(({ claim, passed }) => [claim, passed])).toEqual([
      ["the drill completes", false],
      ["the cluster is restored", true],
    ]);
    expect(restorable()).toEqual(before);
  });

  test("waits until the autoscaler has removed the pods of an earlier load", async () => {
    const { kubeconfig, restorable } = await cluster({ scaledUpMs: 1_500 });
    const before = restorable();
    const lines: string[] = [];
    const record = await rollout(kubeconfig, await service(), (line) => lines.push(line));
    expect(lines[0]).toBe(
      "the autoscaler holds 4 pods from an earlier load; waiting up to 121 s for 2",
    );
    expect(record.replicas[0]).toMatchObject({ desired: 2, pods: 2 });
    expect(record.passed).toBe(true);
    expect(restorable()).toEqual(before);
  });

  test("records a change that the cluster rejects", async () => {
    const { kubeconfig, restorable } = await cluster({ patchFails: true });
    const before = restorable();
    const record = await rollout(kubeconfig, await service());
    expect(record.passed).toBe(false);
    expect(record.checks[0]?.message).toContain("failed calling webhook");
    expect(restorable()).toEqual(before);
  });

  test("restores the cluster after an interruption, even if the service hangs", async () => {
    const { kubeconfig, restorable } = await cluster();
    const before = restorable();
    const lines: string[] = [];
    const interrupted = rollout(kubeconfig, await service(2), (line, interrupt) => {
      lines.push(line);
      if (line.includes(toBadImage)) interrupt();
    });
    await expect(interrupted).rejects.toThrow("the cluster is restored");
    const at = lines.findIndex((line) => line.includes(toBadImage));
    expect(lines[at + 1]).toMatch(/^interrupted: /);
    expect(restorable()).toEqual(before);
  });

  test.each(["SIGINT", "SIGHUP"] as const)("restores the cluster after %s", async (signal) => {
    const { kubeconfig, restorable, isPatched } = await cluster();
    const before = restorable();
    const reports = mkdtempSync(join(folder, "reports-"));
    const { child, done } = startClipstack([
      ...["k8s", "rollout", "--kubeconfig", kubeconfig, "--namespace", "clipstack"],
      ...["--url", await service(), "--report", reports],
    ]);
    while (!isPatched() && child.exitCode === null) await sleep(50);
    child.kill(signal);
    // when a terminal closes, both the shell and the terminal send the signal
    if (signal === "SIGHUP") child.kill(signal);
    expect(await done).toMatchObject({
      code: 130,
      stderr: expect.stringContaining("clipstack: interrupted; the cluster is restored"),
    });
    expect(restorable()).toEqual(before);
  });
});

test.each([
  [{ maxUnavailable: 0, maxSurge: 1 }, 2, 0],
  [{ maxUnavailable: "25%", maxSurge: "25%" }, 8, 2],
  [{ maxUnavailable: "25%", maxSurge: "25%" }, 2, 0],
  [{ maxUnavailable: "25%", maxSurge: 0 }, 2, 1],
])("%j of %d pods allows %d unavailable", (rollingUpdate, replicas, away) => {
  expect(maxUnavailablePods({ strategy: { rollingUpdate } }, replicas)).toBe(away);
});
