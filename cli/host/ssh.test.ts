import { expect, test } from "vitest";
import { sshTarget } from "./ssh.ts";

test.each([
  ["ssh://gpu-1", ["--", "gpu-1"], "gpu-1"],
  ["ssh://me@gpu-1:2222", ["-l", "me", "-p", "2222", "--", "gpu-1"], "-p 2222 me@gpu-1"],
  [
    "ssh://me@[2001:db8::1]:22",
    ["-l", "me", "-p", "22", "--", "2001:db8::1"],
    "-p 22 me@2001:db8::1",
  ],
  ["ssh://[::1]", ["--", "::1"], "::1"],
])("%s becomes arguments of ssh", (endpoint, args, text) => {
  expect(sshTarget(endpoint)).toEqual({ args, text });
});

test("an endpoint of another kind is no ssh target", () => {
  expect(sshTarget("unix:///var/run/docker.sock")).toBeUndefined();
});
