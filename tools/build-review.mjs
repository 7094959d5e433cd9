// Writes the published package `@clipstack/review` to review/dist: the command as one file without dependencies, and the licences of the
// packages in it. Run it as `npm run build -w review`.
import { cpSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { licencesOf } from "../inference-image/licences.mjs";
import { root } from "./compile-files.mjs";

const dist = join(root, "review/dist");
const program = "lib/bin/clipstack-review.mjs"; // two folders deep: it finds package.json there
rmSync(dist, { recursive: true, force: true });
const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: ["cli/review-main.ts"],
  outfile: join(dist, program),
  bundle: true,
  minify: true,
  format: "esm",
  platform: "node",
  target: "node20.19",
  metafile: true,
  legalComments: "none",
  logLevel: "error",
  // CommonJS packages require Node's modules at run time
  banner: {
    js: 'import { createRequire as requireFrom } from "node:module"; const require = requireFrom(import.meta.url); const __filename = import.meta.filename; const __dirname = import.meta.dirname;',
  },
});
// read beside the program, for plans with configurations of Triton
const proto = "proto/model_config.proto";
cpSync(join(root, "client/triton", proto), join(dist, "lib/bin", proto));
const licences = licencesOf(Object.keys(metafile.inputs), root);
writeFileSync(join(dist, "THIRD-PARTY-LICENSES.txt"), licences);
for (const file of ["LICENSE", "NOTICE"]) cpSync(join(root, file), join(dist, file));
const url = "https://github.com/clipstack/clipstack/blob/main/docs/guides/review.md";
writeFileSync(
  join(dist, "README.md"),
  `# @clipstack/review\n\nReviews Terraform and OpenTofu plans: \`npx @clipstack/review plan.json\`. Guide: ${url}\n`,
);
const manifest = JSON.parse(readFileSync(join(root, "review/package.json"), "utf8"));
const { name, version, description, license, type, engines } = manifest;
const bin = { "clipstack-review": program };
const text = { name, version, description, license, type, engines, bin };
writeFileSync(join(dist, "package.json"), `${JSON.stringify(text, null, 2)}\n`);
