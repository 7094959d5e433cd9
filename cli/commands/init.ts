import { dirname, join, relative, resolve } from "node:path";
import { type Command, Option } from "commander";
import { UserError } from "../../contract/user-error.ts";
import { packageFolder } from "../../model-tools/files/folders.ts";
import { environmentFile, environmentNameError } from "../../stacks/settings/environment-files.ts";
import { environmentTemplate } from "../../stacks/settings/environment-template.ts";
import { type StackName, stackNames } from "../../stacks/settings/settings.ts";
import { environmentsFolder } from "../shared/project.ts";
import { writeNewFile } from "../shared/write-output.ts";

interface InitArguments {
  readonly stack: StackName;
  readonly environments: string;
}

/** Registers `clipstack init`, which writes a new environment file. */
export function registerInit(program: Command): void {
  program
    .command("init")
    .argument("<environment>", "name of the environment: lower-case letters, digits and '-'")
    .addOption(
      new Option("--stack <stack>", "kind of deployment").choices(stackNames).makeOptionMandatory(),
    )
    .option(
      "--environments <folder>",
      "folder of the environments",
      relative("", environmentsFolder()),
    )
    .addHelpText(
      "after",
      `
Writes environments/<environment>.yaml with every setting of the stack, its description and its default.

Examples:
  $ npx clipstack init staging --stack single-gpu
  $ npx cdktf deploy staging

Exit codes: 0 written, 2 wrong usage, or the file exists.`,
    )
    .action(init);
}

function init(name: string, { stack, environments }: InitArguments): void {
  const nameError = environmentNameError(name);
  if (nameError !== undefined) throw new UserError(nameError);
  const file = environmentFile(resolve(environments), name);
  const schema = join(packageFolder, "stacks/schemas", `${stack}.schema.json`);
  const text = environmentTemplate(name, stack, relative(dirname(file), schema));
  writeNewFile(file, text);
  console.log(`${file}\nDeploy it with: npx cdktf deploy ${name}`);
}
