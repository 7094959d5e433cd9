/**
 * Exits with one line if Node is too old. Every command imports it before anything else; plain JavaScript without imports, so that an
 * old version can read it.
 */
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
if (major < 20 || (major === 20 && minor < 19)) {
  console.error(`clipstack: node must be 20.19 or newer, got ${process.versions.node}`);
  process.exit(2);
}
