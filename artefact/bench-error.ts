/** Wrong input to the bench: a file, an option or a machine that does not fit. One line, for a person. */
export class BenchError extends Error {
  override readonly name = "BenchError";
}
