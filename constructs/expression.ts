/** An expression that Terraform evaluates: `${text}`. */
export function expression(text: string): string {
  return `\${${text}}`;
}
