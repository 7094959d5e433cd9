import { expect, test } from "vitest";
import type { Environment } from "../../contract/environment.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { planTunnel } from "../host/ssh-tunnel.ts";
import { noTunnelMessage, withMonitoring } from "./tunnel.ts";

const environment: Environment = {
  schema: 4,
  name: "k8s-gpu",
  where: "gpu",
  kubeconfig: "~/.kube/config",
  namespace: "ml",
  accelerator: "cpu",
  models: [defaultModel],
  services: [
    {
      name: "embed",
      kind: "embed",
      backend: "onnxruntime",
      models: [defaultModel.name],
      modelKind: "fp32",
      resources: {},
      endpoints: [
        { protocol: "embed-http", url: "http://clipstack-embed.ml.svc:8002", name: "embed-http" },
        { protocol: "metrics", url: "http://clipstack-embed.ml.svc:8002" },
        { protocol: "oip-grpc", url: "clipstack-triton.ml.svc:8001" },
      ],
    },
  ],
};

test("names the kubectl command for each Service without an external address", () => {
  const kubectl = "kubectl --kubeconfig ~/.kube/config --context gpu --namespace ml port-forward";
  expect(noTunnelMessage(environment)).toBe(
    `k8s-gpu needs no ssh tunnel; forward the Services of its cluster with '${kubectl} service/clipstack-embed 8002', '${kubectl} service/clipstack-triton 8001'`,
  );
});

test("needs no tunnel for a NodePort", () => {
  const [embed] = environment.services;
  const endpoints = [{ protocol: "embed-http", url: "http://127.0.0.1:8092" }] as const;
  expect(
    noTunnelMessage({ ...environment, services: [{ ...embed!, endpoints: [...endpoints] }] }),
  ).toBe(
    "k8s-gpu needs no tunnel: it is on this machine (gpu), and its endpoints are reachable directly: http://127.0.0.1:8092",
  );
});

test("forwards the ports of the monitoring", () => {
  const monitoring = { prometheus: "http://127.0.0.1:9090", grafana: "http://127.0.0.1:3000" };
  const onHost = { ...environment, where: "ssh://gpu@gpu-host", monitoring };
  expect(planTunnel(withMonitoring(onHost), 1)?.forwards).toEqual([
    { remote: 9090, local: 9091, endpoints: "monitoring prometheus" },
    { remote: 3000, local: 3001, endpoints: "monitoring grafana" },
  ]);
});
