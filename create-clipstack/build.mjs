// `npm pack -w create-clipstack`: adds the environments that a project can start with.
import { copyFileSync, mkdirSync } from "node:fs";
import { environmentFiles } from "./create-project.mjs";

mkdirSync("environments", { recursive: true });
for (const file of Object.values(environmentFiles)) {
  copyFileSync(`../environments/${file}`, `environments/${file}`);
}
for (const file of ["LICENSE", "NOTICE"]) copyFileSync(`../${file}`, file);
