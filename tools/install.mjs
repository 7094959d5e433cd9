// Plain JavaScript, because it runs before any package is installed.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("../", import.meta.url));
const stampFile = `${root}node_modules/.clipstack-install`;

/** Key of an installation: the lock file and the platform of the binaries. */
function installationKey() {
  const lock = createHash("sha256")
    .update(readFileSync(`${root}package-lock.json`))
    .digest("hex");
  return `${lock} ${process.platform}-${process.arch}`;
}

/** Returns whether npm installed the current lock file. npm writes the file at the end of an installation. */
function isInstalledByNpm() {
  const installed = `${root}node_modules/.package-lock.json`;
  return (
    !existsSync(stampFile) &&
    existsSync(installed) &&
    statSync(installed).mtimeMs >= statSync(`${root}package-lock.json`).mtimeMs
  );
}

/** Installs the packages of the lock file unless they are installed. Exits with one line if that fails. */
export function ensureInstalled() {
  const key = installationKey();
  if (existsSync(stampFile) && readFileSync(stampFile, "utf8") === key) return;
  if (isInstalledByNpm()) {
    writeFileSync(stampFile, key);
    return;
  }

  console.error("clipstack: installing packages (npm ci)");
  const npm = process.env.npm_execpath;
  const [command, args] = npm?.endsWith(".js") ? [process.execPath, [npm]] : ["npm", []];
  // npm prints to stderr, because the command may print JSON to stdout
  const result = spawnSync(command, [...args, "ci", "--no-audit", "--no-fund"], {
    cwd: root,
    stdio: ["ignore", 2, 2],
    shell: process.platform === "win32",
  });
  if (result.status !== 0) {
    console.error(`clipstack: npm ci failed with exit code ${result.status ?? result.signal}`);
    process.exit(1);
  }
  writeFileSync(stampFile, key);
}

export { root };
