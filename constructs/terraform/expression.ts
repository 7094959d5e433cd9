/** Returns a Terraform expression: `${text}`. */
export function expression(text: string): string {
  return `\${${text}}`;
}

/** Project folder, relative to the Terraform root module `cdktf.out/stacks/<name>`, and therefore the same on every machine. */
export const projectFolder = `${expression("path.root")}/../../..`;
