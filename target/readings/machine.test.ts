import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { cpus, tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, onTestFinished, test } from "vitest";
import { machineSubject } from "../subject/subject.ts";
import { cpuLimit, describeMachine } from "./machine.ts";

/** Root of a file system with these files. */
function rootWith(files: Readonly<Record<string, string>>): string {
  const root = mkdtempSync(join(tmpdir(), "clipstack-machine-"));
  onTestFinished(() => rmSync(root, { recursive: true }));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true });
    writeFileSync(join(root, path), text);
  }
  return root;
}

test("this machine is described by its CPU, memory and system", () => {
  const machine = describeMachine();
  expect(machineSubject.parse(machine)).toEqual(JSON.parse(JSON.stringify(machine)));
  expect(machine.cores).toBe(cpus().length);
});

test.each([
  [
    "of version 2",
    {
      "proc/self/cgroup": "0::/system.slice/bench.service\n",
      "sys/fs/cgroup/system.slice/bench.service/cpu.max": "150000 100000\n",
    },
    1.5,
  ],
  [
    "of version 2 in a container, whose own group is mounted",
    {
      "proc/self/cgroup": "0::/../abc\n",
      "sys/fs/cgroup/cpu.max": "400000 100000\n",
    },
    4,
  ],
  [
    "of version 1",
    {
      "proc/self/cgroup": "4:memory:/m\n3:cpu,cpuacct:/docker/abc\n1:name=systemd:/\n0::/\n",
      "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_quota_us": "50000\n",
      "sys/fs/cgroup/cpu/docker/abc/cpu.cfs_period_us": "100000\n",
    },
    0.5,
  ],
  [
    "of version 2 without a quota",
    { "proc/self/cgroup": "0::/\n", "sys/fs/cgroup/cpu.max": "max 100000\n" },
    undefined,
  ],
  [
    "of version 1 without a quota",
    {
      "proc/self/cgroup": "1:cpu:/\n",
      "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
      "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n",
    },
    undefined,
  ],
  ["that is unreadable", {}, undefined],
])("the CPU limit of a control group %s", (_, files, expected) => {
  expect(cpuLimit(rootWith(files))).toBe(expected);
});
