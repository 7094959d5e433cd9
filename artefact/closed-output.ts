/** Lets a command end with its own exit code although a reader such as `head` closed its output early. */
export function ignoreClosedOutput(): void {
  for (const output of [process.stdout, process.stderr]) {
    output.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code !== "EPIPE") throw error;
    });
  }
}
