import { expect, test } from "vitest";
import { dockerDocument } from "../../artefact/test-artefact.ts";
import { addressOf, planTunnel, throughTunnel } from "./ssh-tunnel.ts";

/** Embed server and Triton on a host. */
function environmentOn(where: string) {
  return { ...dockerDocument().output.environment.value, where };
}

test("forwards each loopback port of the host once, with its endpoints", () => {
  const plan = planTunnel(environmentOn("ssh://user@gpu.example:2222"), 10_000);
  expect(plan?.target.text).toBe("-p 2222 user@gpu.example");
  expect(plan?.forwards).toEqual([
    { remote: 8002, local: 18_002, endpoints: "embed embed-http, embed metrics" },
    { remote: 8010, local: 18_010, endpoints: "triton-onnx oip-http" },
    { remote: 8011, local: 18_011, endpoints: "triton-onnx oip-grpc" },
    { remote: 8012, local: 18_012, endpoints: "triton-onnx metrics" },
  ]);
});

test("replaces the port of a URL with the local one, with and without a scheme", () => {
  const plan = planTunnel(environmentOn("ssh://gpu.example"), 1);
  expect(throughTunnel("http://127.0.0.1:8010", plan)).toBe("http://127.0.0.1:8011");
  expect(throughTunnel("127.0.0.1:8011", plan)).toBe("127.0.0.1:8012");
});

test("does not change a public endpoint", () => {
  const environment = environmentOn("ssh://gpu.example");
  const [embed] = environment.services;
  if (embed === undefined) throw new Error("no service");
  const endpoints = embed.endpoints.map((it) => ({ ...it, url: "http://gpu.example:8002" }));
  const open = { ...environment, services: [{ ...embed, endpoints }] };
  expect(planTunnel(open, 0)).toBeUndefined();
  expect(throughTunnel("http://gpu.example:8002", planTunnel(environment, 5))).toBe(
    "http://gpu.example:8002",
  );
});

test.each(["unix:///var/run/docker.sock", "tcp://gpu.example:2376", "kind-clipstack"])(
  "%s needs no tunnel, or can have none",
  (where) => {
    expect(planTunnel(environmentOn(where), 0)).toBeUndefined();
  },
);

test("fails on an offset beyond the last port", () => {
  expect(() => planTunnel(environmentOn("ssh://gpu.example"), 60_000)).toThrow(
    "--port-offset: port 8002 + 60000 must be 1 to 65535",
  );
});

test("parses host and port of both forms of an endpoint", () => {
  expect(addressOf({ url: "http://127.0.0.1:80" })).toEqual({ host: "127.0.0.1", port: 80 });
  expect(addressOf({ url: "gpu.example:8001" })).toEqual({ host: "gpu.example", port: 8001 });
});
