import { expect, test } from "vitest";
import type { TerraformStack } from "../terraform/cdktf.ts";
import { dependenciesIn, findings, hostIn, synth } from "../test-synth.ts";
import { acme } from "./caddyfile.ts";
import type { EmbedServerProps } from "./embed-plan.ts";
import { EmbedServer } from "./embed-server.ts";
import { tlsProxy } from "./tls-proxy.ts";
import { TritonServer } from "./triton-server.ts";

const certificate = acme.parse({
  domain: "embed.example.com",
  email: "ops@example.com",
  directory: "https://acme.internal:14000/dir",
  ca: "/etc/clipstack/acme.pem",
});

/** Adds a host with a proxy, an embed server and a Triton server. */
function servicesIn(
  stack: TerraformStack,
  embed: Partial<EmbedServerProps> = {},
  expose: EmbedServerProps["expose"] = "all-interfaces",
  http = 8010,
) {
  const host = hostIn(stack, { acme: certificate });
  tlsProxy(stack, host);
  const shared = { host, ...dependenciesIn(stack, host) };
  const triton = new TritonServer(stack, "triton", {
    ...shared,
    server: { kind: "emulator" },
    backend: "onnxruntime",
    ports: { http, grpc: 8011, metrics: 8012 },
    expose,
    allowUnauthenticated: true,
  });
  const server = new EmbedServer(stack, "embed", {
    host,
    image: shared.tools,
    backend: { kind: "triton", upstreams: [triton] },
    expose,
    ...embed,
  });
  return { server, triton };
}

test("the proxy alone publishes ports for other hosts", () => {
  const { at, all } = synth((stack) => servicesIn(stack));
  const openPorts = all("docker_container").flatMap(({ name, ports = [] }) =>
    ports
      .filter(({ ip }: { ip: string }) => ip === "0.0.0.0")
      .map(({ external }: { external: number }) => `${name} ${external}`),
  );
  const proxy = "test-tls-proxy";
  expect(openPorts.sort()).toEqual(
    ["80", "443", "9010", "9011"].map((port) => `${proxy} ${port}`).sort(),
  );
  expect(at("test/embed/container").labels).not.toContainEqual({
    label: "clipstack.allow-plaintext",
    value: "true",
  });
  expect(at("test/tls-proxy/container")).toMatchObject({
    user: "1000:1000",
    read_only: true,
    memory: 256,
    host: [{ host: "embed.example.com", ip: "127.0.0.1" }],
    volumes: expect.arrayContaining([
      {
        host_path: "/etc/clipstack",
        container_path: "/host/etc/clipstack",
        read_only: true,
      },
    ]),
  });
});

test("renders the configuration of all services", () => {
  const { at } = synth((stack) => servicesIn(stack));
  const { env } = at("test/tls-proxy/container");
  const caddyfile = env.find((line: string) => line.startsWith("CADDYFILE="));
  expect(caddyfile).toMatchInlineSnapshot(`
    "CADDYFILE={
    	admin off
    	email ops@example.com
    	acme_ca https://acme.internal:14000/dir
    	acme_ca_root /host/etc/clipstack/acme.pem
    	http_port 1080
    	https_port 1443
    	storage file_system /data
    	servers {
    		protocols h1 h2
    	}
    }

    https://embed.example.com:9010 {
    	reverse_proxy http://test-triton:8000 {
    		transport http {
    			keepalive 60s
    		}
    	}
    }

    https://embed.example.com:9011 {
    	reverse_proxy h2c://test-triton:8001 {
    		transport http {
    			keepalive 60s
    			versions h2c 2
    		}
    	}
    }

    https://embed.example.com:1443 {
    	reverse_proxy http://test-embed:8002 {
    		transport http {
    			keepalive 60s
    		}
    	}
    }

    https://embed.example.com:1019 {
    	bind 127.0.0.1
    	respond 200
    }
    "
  `);
});

test("the environment has the addresses with TLS", () => {
  let services: ReturnType<typeof servicesIn> | undefined;
  synth((stack) => {
    services = servicesIn(stack);
  });
  expect(services?.server.service.endpoints.map(({ url }) => url)).toEqual([
    "https://embed.example.com",
    "https://embed.example.com",
  ]);
  expect(services?.server.service.authorization).toBe("bearer");
  expect(services?.triton.service.endpoints.map(({ url }) => url)).toEqual([
    "https://embed.example.com:9010",
    "https://embed.example.com:9011",
    "http://127.0.0.1:8012",
  ]);
});

test.each<
  [string, Partial<EmbedServerProps>, EmbedServerProps["expose"], number, readonly string[]]
>([
  [
    "certificate files",
    { tls: { certificate: "/etc/tls/tls.crt", key: "/etc/tls/tls.key" } },
    "all-interfaces",
    8010,
    ["test/embed: tls must be unset if the host has acme, got '/etc/tls/tls.crt'"],
  ],
  [
    "no exposed service",
    {},
    "loopback",
    8010,
    [
      "test/tls-proxy: acme must be set only with a service that has expose: all-interfaces, got 'embed.example.com'",
    ],
  ],
  [
    "a port without a port for TLS",
    {},
    "all-interfaces",
    65_000,
    [
      "test/triton: ports.http must be at most 64535, because the port with TLS is 1000 higher, got 65000",
    ],
  ],
  [
    "a used port",
    { port: 443 },
    "all-interfaces",
    8010,
    ["test/embed: port must be free on the host, got 443, which tls-proxy (acme) uses"],
  ],
])("fails on %s", (_name, embed, expose, http, expected) => {
  expect(findings((stack) => servicesIn(stack, embed, expose, http))).toEqual(expected);
});

test("fails on a host without the proxy", () => {
  expect(findings((stack) => hostIn(stack, { acme: certificate }))).toEqual([
    "test/host: acme must be set only with a TlsProxy of the host, got 'embed.example.com'",
  ]);
});

test.each([
  ["domain", { domain: "localhost" }],
  ["domain", { domain: "a.b {" }],
  ["email", { email: "ops" }],
  ["directory", { directory: "http://acme.internal/dir" }],
  ["ca", { ca: "/acme.pem" }],
])("rejects %s of %j", (key, value) => {
  const { error } = acme.safeParse({ ...certificate, ...value });
  expect(error?.issues.map(({ path }) => path.join("."))).toEqual([key]);
});
