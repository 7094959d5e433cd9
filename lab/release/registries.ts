import { readFile, writeFile } from "node:fs/promises";
import { createServer as createWebServer } from "node:http";
import { connect, createServer, type Server } from "node:net";
import { join } from "node:path";
import { execa } from "execa";

/** Registries of this machine: on 127.0.0.1, and on an address of the kind network. */

const closed: (() => void)[] = [];

/** Stops every server that this module started. */
export function stopServers(): void {
  for (const close of closed.splice(0)) close();
}

function serve(program: string, args: readonly string[]): void {
  const server = execa(program, [...args], { stdio: "ignore", reject: false });
  closed.push(() => void server.kill());
}

export async function answered(url: string): Promise<Response> {
  const end = performance.now() + 120_000;
  for (;;) {
    const response = await fetch(url).catch(() => undefined);
    if (response?.ok) return response;
    if (performance.now() > end) throw new Error(`no answer from ${url}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

/** Starts verdaccio: our packages are published here, and all others come from the npm registry of this machine. */
export async function startNpmRegistry(verdaccio: string, folder: string, port: number) {
  const { stdout: upstream } = await execa("npm", ["config", "get", "registry"]);
  const config = {
    storage: join(folder, "npm-registry"),
    uplinks: { npmjs: { url: upstream.trim(), maxage: "1d" } },
    packages: {
      "{clipstack,create-clipstack,@clipstack/*}": { access: "$all", publish: "$all" },
      "**": { access: "$all", proxy: "npmjs" },
    },
    log: { type: "stdout", level: "error" },
  };
  await writeFile(join(folder, "verdaccio.yaml"), JSON.stringify(config));
  await writeFile(join(folder, "npmrc"), `//127.0.0.1:${port}/:_authToken=rehearsal\n`);
  const listen = ["--config", join(folder, "verdaccio.yaml"), "--listen", `127.0.0.1:${port}`];
  serve(process.execPath, [verdaccio, ...listen]);
  await answered(`http://127.0.0.1:${port}/-/ping`);
}

export async function startImageRegistry(folder: string, port: number): Promise<void> {
  const config = {
    version: 0.1,
    storage: { filesystem: { rootdirectory: join(folder, "oci") } },
    http: { addr: `127.0.0.1:${port}` },
  };
  await writeFile(join(folder, "registry.yaml"), JSON.stringify(config));
  serve("docker-registry", ["serve", join(folder, "registry.yaml")]);
  await answered(`http://127.0.0.1:${port}/v2/`);
}

/** Forwards a port of `address` to the same port of 127.0.0.1. */
export async function forward(address: string, port: number): Promise<void> {
  const server = createServer((client) => {
    const upstream = connect(port, "127.0.0.1");
    client.on("error", () => upstream.destroy()).pipe(upstream);
    upstream.on("error", () => client.destroy()).pipe(client);
  });
  await listening(server, address, port);
}

/** Serves one file, whatever the path. */
export async function serveFile(file: string, address: string, port: number): Promise<void> {
  const bytes = await readFile(file);
  await listening(
    createWebServer((_request, response) => response.end(bytes)),
    address,
    port,
  );
}

async function listening(server: Server, address: string, port: number): Promise<void> {
  await new Promise<void>((resolve) => server.listen(port, address, resolve));
  closed.push(() => void server.close());
}
