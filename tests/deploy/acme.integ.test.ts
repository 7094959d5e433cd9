import { once } from "node:events";
import { mkdir, readFile, writeFile } from "node:fs/promises";
import { request as plainRequest } from "node:http";
import { Agent, request } from "node:https";
import { join } from "node:path";
import { text } from "node:stream/consumers";
import type { TLSSocket } from "node:tls";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { freePorts, isPortInUse } from "../../artefact/free-ports.ts";
import { openGrpcTransport } from "../../client/triton/grpc-transport.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tlsProxyPorts, tritonTlsOffset } from "../../contract/ports.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { testDocker } from "./test-docker.ts";
import { keptImage } from "./test-image.ts";
import { type TestProject, testProject, tritonPortsOf } from "./test-project.ts";

/** The proxy of `embed.tls.acme` with a certificate from a private ACME server: Caddy's own, in a container of the same host. */

const environment = "clipstack-test-acme";
const domain = "embed.clipstack.test";
const apiKey = "a-key-for-the-clients-of-the-proxy";
const authority = "clipstack-test-authority";

const { docker, missing: noEngine } = await testDocker();
const portsInUse = await Promise.all(Object.values(tlsProxyPorts).map((port) => isPortInUse(port)));
const missing = noEngine || (portsInUse.includes(true) ? "the ports 80 and 443 are not free" : "");

describe.skipIf(missing !== "")(
  `a certificate from an ACME server${missing && ` (skipped: ${missing})`}`,
  () => {
    let project: TestProject;
    let before: readonly string[];
    let embedPort: number;
    let http: number;
    let deploySettings: (expose: "loopback" | "all-interfaces") => Promise<void>;
    let ca: Buffer;

    beforeAll(async () => {
      const image = await keptImage(docker, "caddy");
      const embedImage = await keptImage(docker, "embed");
      before = await docker.contents();
      project = await testProject({ docker, variables: { TF_VAR_embed_api_key: apiKey } });
      const [acmePort = 0, embed = 0, triton = 0] = await freePorts(3);
      [embedPort, http] = [embed, triton];
      const gateway = "{{(index .IPAM.Config 0).Gateway}}";
      const host = await docker.run("network", "inspect", "bridge", "--format", gateway);
      const config = `{
  admin off
  skip_install_trust
  auto_https disable_redirects
  default_sni ${host}
}
https://${host}:${acmePort} {
  tls internal
  acme_server
}`;
      await docker.run(
        ...["run", "--detach", "--name", authority, "--env", `CADDYFILE=${config}`],
        ...["--add-host", `${domain}:${host}`, "--publish", `${host}:${acmePort}:${acmePort}`],
        ...[image, "sh", "-c", 'printf %s "$CADDYFILE" > /tmp/Caddyfile && cd /tmp && caddy run'],
      );
      const root = "/data/caddy/pki/authorities/local/root.crt";
      const pem = await vi.waitFor(() => docker.run("exec", authority, "cat", root), 30_000);
      ca = Buffer.from(pem);
      await mkdir(join(project.folder, "acme"));
      await writeFile(join(project.folder, "acme", "root.pem"), pem);
      deploySettings = async (expose) => {
        await project.settings(environment, {
          accelerator: "cpu",
          host: { docker: docker.endpoint },
          network: environment,
          embed: {
            port: embedPort,
            image: embedImage,
            expose: "all-interfaces",
            tls: {
              acme: {
                domain,
                email: "ops@example.com",
                directory: `https://${host}:${acmePort}/acme/local/directory`,
                ca: join(project.folder, "acme", "root.pem"),
                image,
              },
            },
          },
          tritonOnnx: {
            server: "emulator",
            ports: tritonPortsOf(http),
            expose,
            allowUnauthenticated: true,
          },
          tritonTrt: { enabled: false },
        });
        const { code, output } = await project.deploy(environment);
        expect(code, output).toBe(0);
      };
    });
    afterAll(async () => {
      await project?.remove();
      await docker.run("rm", "--force", "--volumes", authority);
    });

    /** Sends a request over a new connection with a verified certificate. */
    const send = async (path: string, body?: Buffer, headers: Record<string, string> = {}) => {
      const sent = request({
        ...{ host: "127.0.0.1", servername: domain, ca, agent: new Agent(), path },
        ...{ method: body === undefined ? "GET" : "POST", headers: { host: domain, ...headers } },
      });
      sent.end(body);
      const [response] = await once(sent, "response");
      const certificate = (response.socket as TLSSocket).getPeerCertificate();
      return { status: response.statusCode, certificate, body: await text(response) };
    };
    const sendPlain = async (port: number) => {
      const sent = plainRequest({
        host: "127.0.0.1",
        port,
        path: "/embed",
        headers: { host: domain },
      });
      sent.end();
      const [response] = await once(sent, "response");
      response.resume();
      return [response.statusCode, response.headers.location];
    };

    test("the deployment ends when the certificate is there", async () => {
      await deploySettings("all-interfaces");
      const { status, certificate } = await send("/readyz");
      expect([status, certificate.subjectaltname]).toEqual([200, `DNS:${domain}`]);
      expect(certificate.issuer.CN).toContain("Caddy Local Authority");
      expect(await project.plan(environment)).toEqual([]);
    });

    test("HTTPS requires the key", async () => {
      const file = new URL("../../model-tools/samples/dunes.jpg", import.meta.url);
      const photo = await readFile(fileURLToPath(file));
      const headers = { "content-type": "image/jpeg" };
      expect((await send("/embed", photo, headers)).status).toBe(401);
      const authorization = `Bearer ${apiKey}`;
      const { status, body } = await send("/embed", photo, { ...headers, authorization });
      expect(status).toBe(200);
      expect(JSON.parse(body).embeddings[0]).toHaveLength(defaultModel.embedding.width);
    });

    test("a Triton server answers gRPC with TLS", async () => {
      const port = http + 1 + tritonTlsOffset;
      const transport = openGrpcTransport({
        target: `${domain}:${port}`,
        address: `127.0.0.1:${port}`,
        tls: { ca },
      });
      const model = tritonModelName(defaultModel, "fp32");
      expect(await transport.ready(model, { timeoutMs: 10_000 })).toBe(true);
      await transport.close();
    });

    test("plain text is redirected or rejected", async () => {
      expect(await sendPlain(tlsProxyPorts.http)).toEqual([308, `https://${domain}/embed`]);
      for (const port of [tlsProxyPorts.https, http + tritonTlsOffset])
        expect(await sendPlain(port)).toEqual([400, undefined]);
      const published = await docker.lines("port", `${environment}-embed`);
      for (const line of published) expect(line).toContain("-> 127.0.0.1:");
    });

    test("another proxy keeps the certificate", async () => {
      const { certificate } = await send("/healthz");
      const { Id } = await docker.inspect(`${environment}-tls-proxy`);
      await deploySettings("loopback");
      expect((await docker.inspect(`${environment}-tls-proxy`)).Id).not.toBe(Id);
      expect((await send("/healthz")).certificate.serialNumber).toBe(certificate.serialNumber);
    });

    test("destroy leaves no container, network, volume or image", async () => {
      const { code, output } = await project.destroy(environment);
      expect(code, output).toBe(0);
      await docker.run("rm", "--force", "--volumes", authority);
      expect(await docker.contents()).toEqual(before);
    });
  },
);
