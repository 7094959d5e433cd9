const masked = "***";

/** Arguments of a command without secrets: credentials and query parameters of addresses are masked. */
export function commandLine(args: readonly string[]): string[] {
  return args.map((arg) =>
    arg
      .replace(/(\/\/)[^/\s]+@/g, `$1${masked}@`)
      // gRPC addresses have no scheme
      .replace(/^([\w-]+=)[^/\s]+@/, `$1${masked}@`)
      .replace(/([?&][^=&\s]+=)[^&\s]+/g, `$1${masked}`),
  );
}
