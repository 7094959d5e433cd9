import { expect, test } from "vitest";
import { scrapeConfig } from "./scrape-config.ts";

test("a ServiceMonitor selects the port of its Services' endpoints, with the key of a Secret", () => {
  const monitor = {
    metadata: { name: "embed", namespace: "clipstack" },
    spec: {
      selector: { matchLabels: { component: "embed" } },
      namespaceSelector: { matchNames: ["clipstack"] },
      endpoints: [
        {
          port: "http",
          path: "/metrics",
          authorization: { credentials: { name: "keys", key: "k" } },
        },
      ],
    },
  };
  const slice = (namespace: string, component: string) => ({
    metadata: { namespace, labels: { component, "kubernetes.io/service-name": component } },
    ports: [
      { name: "grpc", port: 8001 },
      { name: "http", port: 8002 },
    ],
    endpoints: [{ addresses: ["10.0.0.7"], targetRef: { name: "embed-1" } }],
  });
  const slices = [
    slice("clipstack", "embed"),
    slice("other", "embed"),
    slice("clipstack", "triton"),
  ];
  expect(scrapeConfig([monitor], slices, (...of) => of.join("/")).scrape_configs).toMatchObject([
    {
      metrics_path: "/metrics",
      authorization: { credentials: "clipstack/keys/k" },
      static_configs: [
        {
          targets: ["10.0.0.7:8002"],
          labels: { namespace: "clipstack", pod: "embed-1", service: "embed" },
        },
      ],
    },
  ]);
});
