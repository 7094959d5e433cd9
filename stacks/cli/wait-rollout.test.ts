import { mkdtempSync, rmSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, test } from "vitest";
import { clipstack, pathWith, standIns } from "./test-programs.ts";

const programs = standIns();
const empty = mkdtempSync(join(tmpdir(), "clipstack-wait-rollout-"));
symlinkSync(process.execPath, join(empty, "node"));
afterAll(() => {
  programs.remove();
  rmSync(empty, { recursive: true, force: true });
});

const selector = { matchLabels: { app: "embed" } };
const deployment = (availableReplicas: number) =>
  JSON.stringify({
    metadata: { generation: 1 },
    spec: { replicas: 1, selector },
    status: { observedGeneration: 1, replicas: 1, updatedReplicas: 1, availableReplicas },
  });
const looping = JSON.stringify({
  items: [
    {
      metadata: { name: "embed-1", creationTimestamp: "2026-11-21T20:00:00Z" },
      status: {
        containerStatuses: [
          {
            name: "embed",
            restartCount: 3,
            lastState: { terminated: { exitCode: 3, reason: "Error" } },
          },
        ],
      },
    },
  ],
});
const warned = JSON.stringify({
  items: [
    {
      reason: "BackOff",
      message: "Back-off restarting",
      metadata: { creationTimestamp: "2026-11-21T20:00:00Z" },
    },
  ],
});

/** A `kubectl` that knows one Deployment, and what is asked of its pods. */
function kubectl(ready: number, pods: string): void {
  programs.put(
    "kubectl",
    `case "$*" in
  *"get deployment"*) echo '${deployment(ready)}';;
  *"get pods"*) echo '${pods}';;
  *"get events"*) echo '${warned}';;
  *"get replicasets"*) echo '{"items":[]}';;
  *"logs embed-1 --container=embed --tail=20"*) echo "no model at /models";;
  *) echo "not expected: $*" >&2; exit 9;;
esac`,
  );
}

const wait = (path: string, ...args: readonly string[]) =>
  clipstack(["wait-rollout", "embed", "--context", "mine", "--timeout", "30", ...args], {
    PATH: path,
  });

test("ends when the pods are ready", async () => {
  kubectl(1, '{"items":[]}');
  const { code, stdout, stderr } = await wait(pathWith(programs.folder));
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout).toMatch(/^embed: 1 of 1 pods are new, 1 ready \(\d+\.\d s\)$/);
});

test("fails with what the cluster says of a pod that will not be ready, and its last log lines", async () => {
  kubectl(0, looping);
  const { code, stdout, stderr } = await wait(pathWith(programs.folder));
  expect({ code, stderr }).toEqual({ code: 1, stderr: "" });
  expect(stdout.split("\n").slice(1)).toEqual([
    "embed is not ready: container embed restarts in a loop (3 times): it exited with code 3",
    "what the cluster says of pod embed-1:",
    "  BackOff: Back-off restarting",
    "its last log lines:",
    "  no model at /models",
  ]);
});

test("fails in one line without kubectl, and where there is no such context", async () => {
  const missing = await wait(empty);
  expect(missing.code).toBe(2);
  expect(missing.stderr).toMatch(/^clipstack: kubectl is not installed on this machine.*$/);
  programs.put("kubectl", 'echo "error: context \\"mine\\" does not exist" >&2; exit 1');
  const other = await wait(pathWith(programs.folder));
  expect(other.code).toBe(2);
  expect(other.stderr).toMatch(/^clipstack: there is no context 'mine'.*$/);
});

test("fails on a number that is none", async () => {
  const { code, stderr } = await wait(empty, "--replicas", "two");
  expect(code).toBe(2);
  expect(stderr).toContain("It must be a whole number, 1 to 86400.");
});
