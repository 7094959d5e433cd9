import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  accessSync,
  chmodSync,
  constants,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { connect } from "node:net";
import { tmpdir, userInfo } from "node:os";
import { delimiter, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { promisify } from "node:util";
import { freePorts } from "../../artefact/free-ports.ts";

/** OpenSSH server for tests on 127.0.0.1, with its own configuration, keys and port. */
export interface TestSshd {
  /** Docker endpoint of this machine over ssh. */
  readonly endpoint: string;
  /** The same with a user who is not allowed to log in. */
  readonly rejectedUser: string;
  /** PATH with an `ssh` that uses the keys, because OpenSSH reads user files from the account's home and not from HOME. */
  readonly path: string;
  /** Closes all connections, like a host that goes down. */
  dropConnections(): void;
  stop(): Promise<void>;
}

const run = promisify(execFile);

/** PATH including the folders of daemons. */
const folders = [...(process.env.PATH ?? "").split(delimiter), "/usr/sbin", "/sbin"];

function find(program: string): string | undefined {
  return folders.map((folder) => join(folder, program)).find(isExecutable);
}

function isExecutable(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}

/** Reason why no server can run on this machine; empty if it can. */
export function noSshd(): string {
  const missing = ["sshd", "ssh", "ssh-keygen"].filter((program) => find(program) === undefined);
  return missing.length === 0 ? "" : `no ${missing.join(", ")} on this machine`;
}

/** @param remoteEnv - Environment variables of programs that run over ssh. */
export async function startSshd(
  remoteEnv: Readonly<Record<string, string>> = {},
): Promise<TestSshd> {
  const folder = mkdtempSync(join(tmpdir(), "clipstack-sshd-"));
  const file = (name: string) => join(folder, name);
  const key = async (name: string) => {
    await run("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", name, "-f", file(name)]);
    return (await run("ssh-keygen", ["-y", "-f", file(name)])).stdout.trim();
  };
  const [port = 0] = await freePorts(1);
  const { username } = userInfo();
  const host = await key("host");
  const variables = Object.entries(remoteEnv).map(([name, value]) => `"${name}=${value}"`);
  writeFileSync(file("authorized_keys"), `${await key("user")}\n`);
  writeFileSync(file("known_hosts"), `[127.0.0.1]:${port} ${host}\n`);
  writeFileSync(
    file("sshd_config"),
    [
      `Port ${port}`,
      "ListenAddress 127.0.0.1",
      `HostKey ${file("host")}`,
      `AuthorizedKeysFile ${file("authorized_keys")}`,
      `PidFile ${file("sshd.pid")}`,
      // the parent folder is world-writable
      "StrictModes no",
      "UsePAM no",
      "PasswordAuthentication no",
      "KbdInteractiveAuthentication no",
      // one line, because sshd uses only the first of several
      ...(variables.length === 0 ? [] : [`SetEnv ${variables.join(" ")}`]),
      "",
    ].join("\n"),
  );
  writeFileSync(
    file("ssh_config"),
    [
      `IdentityFile ${file("user")}`,
      "IdentitiesOnly yes",
      "IdentityAgent none",
      `UserKnownHostsFile ${file("known_hosts")}`,
      "GlobalKnownHostsFile none",
      "StrictHostKeyChecking yes",
      "",
    ].join("\n"),
  );
  mkdirSync(file("bin"));
  writeFileSync(file("bin/ssh"), `#!/bin/sh\nexec ${find("ssh")} -F ${file("ssh_config")} "$@"\n`);
  chmodSync(file("bin/ssh"), 0o755);
  // sshd requires this folder when it runs as root; its package creates it only with the service
  const privileges = "/run/sshd";
  if (process.getuid?.() === 0 && !existsSync(privileges)) mkdirSync(privileges, { mode: 0o755 });

  // sshd re-executes itself for each connection by its absolute path
  const sshd = spawn(find("sshd") ?? "sshd", ["-D", "-e", "-f", file("sshd_config")], {
    stdio: ["ignore", "ignore", "pipe"],
  });
  let output = "";
  sshd.stderr.on("data", (chunk: Buffer) => {
    output += chunk.toString("utf8");
  });
  while (!(await answers(port))) {
    if (sshd.exitCode !== null) throw new Error(`sshd does not start: ${output}`);
    await sleep(20);
  }
  return {
    endpoint: `ssh://${username}@127.0.0.1:${port}`,
    rejectedUser: `ssh://no-such-user@127.0.0.1:${port}`,
    path: `${file("bin")}${delimiter}${process.env.PATH}`,
    dropConnections() {
      // each connection is a child process of the server
      const children = readFileSync(`/proc/${sshd.pid}/task/${sshd.pid}/children`, "utf8");
      for (const pid of children.trim().split(" ").map(Number)) process.kill(pid, "SIGKILL");
    },
    async stop() {
      if (sshd.exitCode === null) {
        sshd.kill("SIGTERM");
        await once(sshd, "close");
      }
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

function answers(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1");
    socket.once("data", () => {
      socket.destroy();
      resolve(true);
    });
    socket.once("error", () => resolve(false));
  });
}
