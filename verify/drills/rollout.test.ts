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
import { mayBeAway, rolloutDrill } from "./rollout.ts";
import { runDrill } from "./run-drill.ts";

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

/** An embed server that answers the first `answers` requests, and keeps the others waiting. */
async function service(answers = Number.POSITIVE_INFINITY): Promise<string> {
  let asked = 0;
  const server: Server = createServer((request, response) => {
    request.resume();
    if (++asked <= answers) request.on("end", () => response.end("{}"));
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
  return runDrill(rolloutDrill, {
    target: { access: { kubeconfig }, namespace, deployment, url },
    images: [{ bytes: new Uint8Array([1]), contentType: "image/jpeg" }],
    // all drills go on at a time
    ratePerSecond: 10,
    concurrency: 1,
    repository: import.meta.dirname,
    signal: controller.signal,
    onStep: (line) => onStep(line, () => controller.abort()),
  });
}

const toBadImage = "rolling update to an image that is not there";

describe.concurrent("the rollout drill", () => {
  test("leaves the template, its owners and the versions to roll back to as they were", async () => {
    const { kubeconfig, kept } = await cluster();
    const before = kept();
    const record = await rollout(kubeconfig, await service());
    expect(record.checks.filter(({ passed }) => !passed)).toEqual([]);
    expect(kept()).toEqual(before);
  });

  test("goes through where the API server is away for a moment", async () => {
    const { kubeconfig, kept } = await cluster({ awayMs: 1_500 });
    const before = kept();
    const record = await rollout(kubeconfig, await service());
    expect(record.passed).toBe(true);
    expect(kept()).toEqual(before);
  });

  test("restores, and says what failed, where the API server is away for longer", async () => {
    const { kubeconfig, kept, comeBack } = await cluster({ awayMs: Number.POSITIVE_INFINITY });
    const before = kept();
    const record = await rollout(kubeconfig, await service(), (line) => {
      if (line.includes("✘ the exercise goes through")) comeBack();
    });
    expect(record.checks.map(({ claim, passed }) => [claim, passed])).toEqual([
      ["the exercise goes through", false],
      ["the cluster is as it was", true],
    ]);
    expect(kept()).toEqual(before);
  });

  test("waits for the autoscaler to take away the pods of an earlier load", async () => {
    const { kubeconfig, kept } = await cluster({ scaledUpMs: 1_500 });
    const before = kept();
    const lines: string[] = [];
    const record = await rollout(kubeconfig, await service(), (line) => lines.push(line));
    expect(lines[0]).toBe(
      "the autoscaler holds 4 pods from an earlier load; waiting for 2, up to 121 s",
    );
    expect(record.replicas[0]).toMatchObject({ wanted: 2, pods: 2 });
    expect(record.passed).toBe(true);
    expect(kept()).toEqual(before);
  });

  test("is on record where the cluster refuses the change", async () => {
    const { kubeconfig, kept } = await cluster({ patchFails: true });
    const before = kept();
    const record = await rollout(kubeconfig, await service());
    expect(record.passed).toBe(false);
    expect(record.checks[0]?.message).toContain("failed calling webhook");
    expect(kept()).toEqual(before);
  });

  test("restores when it is interrupted, and says so at once, also while the service hangs", async () => {
    const { kubeconfig, kept } = await cluster();
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

  test.each(["SIGINT", "SIGHUP"] as const)("restores at %s", async (signal) => {
    const { kubeconfig, kept, isPatched } = await cluster();
    const before = kept();
    const reports = mkdtempSync(join(folder, "reports-"));
    const { child, done } = startClipstack([
      ...["k8s", "rollout", "--kubeconfig", kubeconfig, "--namespace", "clipstack"],
      ...["--url", await service(), "--report", reports],
    ]);
    while (!isPatched() && child.exitCode === null) await sleep(50);
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
