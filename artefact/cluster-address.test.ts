import { expect, test } from "vitest";
import { clusterAddress } from "./cluster-address.ts";

test.each([
  ["http://clipstack-embed.clipstack.svc:8002", 8002],
  ["clipstack-embed.clipstack.svc:8001", 8001],
  ["http://clipstack-embed.clipstack.svc.cluster.local:8002/", 8002],
  ["http://clipstack-embed.clipstack.svc", 80],
])("%s is a Service of a cluster", (url, port) => {
  expect(clusterAddress(url)).toEqual({ service: "clipstack-embed", namespace: "clipstack", port });
});

test.each(["http://127.0.0.1:8092", "gpu-host:8001", "http://clipstack.example.com:80"])(
  "%s is reached from outside",
  (url) => {
    expect(clusterAddress(url)).toBeUndefined();
  },
);
