/** An expression that Terraform evaluates: `${text}`. */
export function expression(text: string): string {
  return `\${${text}}`;
}

/** The project's folder, from where Terraform runs: `cdktf.out/stacks/<name>`. Relative, so the same on every machine. */
export const projectFolder = `${expression("path.root")}/../../..`;
