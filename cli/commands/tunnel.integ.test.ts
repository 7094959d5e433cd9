import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { freePorts, isPortInUse } from "../../artefact/free-ports.ts";
import { embedsDocument } from "../../artefact/test-artefact.ts";
import { noSshd, startSshd, type TestSshd } from "../host/test-sshd.ts";
import { synthesized } from "../test-synthesized.ts";

const program = fileURLToPath(new URL("../clipstack.mjs", import.meta.url));
const missing = noSshd();

describe.skipIf(missing !== "")(`clipstack tunnel${missing && ` (skipped: ${missing})`}`, () => {
  let sshd: TestSshd;
  /** Server on the loopback interface of the host. */
  let service: Server;
  let remote = 0;

  beforeAll(async () => {
    sshd = await startSshd();
    service = createServer((_request, response) => response.end("from the host"));
    service.listen(0, "127.0.0.1");
    await once(service, "listening");
    remote = (service.address() as AddressInfo).port;
  });
  afterAll(async () => {
    service?.closeAllConnections();
    service?.close();
    await sshd?.stop();
  });

  /** Environment with one service on a host. */
  function environmentOn(where: string, port = remote): string {
    const document = embedsDocument("far", [{ name: "embed", port }]);
    document.output.environment.value.where = where;
    return synthesized(document).outdir;
  }

  function start(outdir: string, args: readonly string[], path = sshd.path) {
    const child = spawn(process.execPath, [program, "tunnel", "far", ...args], {
      env: { ...process.env, PATH: path, CDKTF_OUTDIR: outdir },
      stdio: ["ignore", "pipe", "pipe"],
    });
    // the endpoints are printed once they are reachable
    const open = Promise.race([once(child.stdout, "data"), once(child, "close")]);
    return { child, open, stdout: text(child.stdout), stderr: text(child.stderr) };
  }

  async function run(outdir: string, ...args: readonly string[]) {
    const { child, stdout, stderr } = start(outdir, args);
    const [code] = (await once(child, "close")) as [number];
    return { code, stdout: await stdout, stderr: await stderr };
  }

  /** Free local port, and its offset from the remote port. */
  async function localPort() {
    const [local = 0] = await freePorts(1);
    return { local, offset: String(local - remote) };
  }

  async function until(condition: () => Promise<boolean>): Promise<void> {
    while (!(await condition())) await sleep(50);
  }

  test("reaches a port of the host's loopback interface, and Ctrl-C ends it cleanly", async () => {
    const { local, offset } = await localPort();
    const tunnel = start(environmentOn(sshd.endpoint), ["--port-offset", offset]);
    await tunnel.open;
    const answer = await fetch(`http://127.0.0.1:${local}/`);
    expect(await answer.text()).toBe("from the host");
    tunnel.child.kill("SIGINT");
    const [code] = (await once(tunnel.child, "close")) as [number];
    expect({ code, inUse: await isPortInUse(local) }).toEqual({ code: 0, inUse: false });
    expect(await tunnel.stdout).toContain(`  embed  embed-http  http://127.0.0.1:${local}\n`);
    expect(await tunnel.stderr).toContain("clipstack: tunnel closed\n");
  });

  test("leaves no ssh process when it is killed", async () => {
    const { local, offset } = await localPort();
    const tunnel = start(environmentOn(sshd.endpoint), ["--port-offset", offset]);
    await tunnel.open;
    tunnel.child.kill("SIGKILL");
    await until(async () => !(await isPortInUse(local)));
  });

  test("fails in one line on a port in use", async () => {
    const { code, stderr } = await run(environmentOn(sshd.endpoint));
    expect(code).toBe(1);
    expect(stderr.trim().split("\n").at(-1)).toBe(
      `clipstack: far: port ${remote} (embed embed-http) is in use on this machine; rerun with --port-offset 10000`,
    );
  });

  test("fails in one line if the host rejects the key", async () => {
    const { offset } = await localPort();
    const { code, stdout, stderr } = await run(
      environmentOn(sshd.rejectedUser),
      "--port-offset",
      offset,
    );
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr.trim().split("\n").at(-1)).toMatch(
      /^clipstack: far: ssh -p \d+ no-such-user@127\.0\.0\.1 must work without a password/,
    );
  });

  test("fails with exit code 1 and the reason if the connection to the host is lost", async () => {
    const own = await startSshd();
    const { local, offset } = await localPort();
    const args = ["--json", "--port-offset", offset];
    const tunnel = start(environmentOn(own.endpoint), args, own.path);
    await tunnel.open;
    own.dropConnections();
    const [code] = (await once(tunnel.child, "close")) as [number];
    await own.stop();
    expect(code).toBe(1);
    expect(JSON.parse(await tunnel.stdout)).toEqual([
      { service: "embed", protocol: "embed-http", url: `http://127.0.0.1:${local}` },
    ]);
    expect((await tunnel.stderr).trim().split("\n").at(-1)).toMatch(
      /^clipstack: far: ssh .* failed: /,
    );
  });

  test("needs no tunnel for an environment on this machine", async () => {
    const { code, stdout, stderr } = await run(environmentOn("unix:///var/run/docker.sock"));
    expect({ code, stdout }).toEqual({ code: 0, stdout: "" });
    expect(stderr).toContain(
      `clipstack: far needs no tunnel: it is on this machine (unix:///var/run/docker.sock), and its endpoints are reachable directly: http://127.0.0.1:${remote}\n`,
    );
  });
});
