import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { resolve } from "node:path";
import type { Command } from "commander";
import { uiPorts } from "../../inference-image/src/contract/ports.ts";
import { databaseOption, integerOf, untilInterrupt, withDatabase } from "./command-options.ts";
import { DedupeError } from "./dedupe-error.ts";
import type { PhotoDatabase } from "./photo-database.ts";
import { buildReviewApp } from "./review-server.ts";

interface ReviewArguments {
  readonly db: string;
  readonly port?: number;
  readonly rejected?: string;
  readonly demo: boolean;
}

const host = "127.0.0.1";

/** `clipstack-dedupe review` */
export function registerReview(program: Command): void {
  program
    .command("review")
    .description("look at the groups side by side in a browser on this machine, keep and reject")
    .addOption(databaseOption())
    .option(
      "--port <port>",
      `default: ${uiPorts.ui}, with --demo ${uiPorts.demo}; 0 takes a free one`,
      integerOf(0, 65_535),
    )
    .option(
      "--rejected <folder>",
      "where rejected photos are moved; default: clipstack-rejected in the folder that was scanned",
    )
    .option("--demo", "say on the page that the photos are painted", false)
    .addHelpText(
      "after",
      `
Nothing is deleted: "Move rejected" moves files into a folder, and the page takes them back. The page needs no internet and
is for this machine only.

Examples:
  $ npx clipstack-dedupe review
  $ npx clipstack-dedupe review --port 9000 --rejected ~/rejected-photos`,
    )
    .action(async ({ db, port, rejected, demo }: ReviewArguments) => {
      await untilInterrupt((signal) =>
        withDatabase(db, (database) =>
          serveReview(database, {
            port: port ?? (demo ? uiPorts.demo : uiPorts.ui),
            rejectedFolder: rejected === undefined ? undefined : resolve(rejected),
            demo,
            signal,
            onListening: (url) => console.log(`review page: ${url} (Ctrl-C ends it)`),
          }),
        ),
      );
    });
}

export interface ServeReviewOptions {
  /** 0 takes a free one. */
  readonly port: number;
  readonly rejectedFolder?: string;
  readonly demo: boolean;
  readonly onListening: (url: string) => void;
  /** Ends it. */
  readonly signal: AbortSignal;
}

/** Serve the review page on the loopback interface, until the signal. */
export async function serveReview(
  database: PhotoDatabase,
  { port, rejectedFolder, demo, onListening, signal }: ServeReviewOptions,
): Promise<void> {
  const app = buildReviewApp({ database, rejectedFolder, demo });
  try {
    await app.listen({ host, port }).catch((cause: NodeJS.ErrnoException) => {
      const taken = cause.code === "EADDRINUSE";
      throw new DedupeError(
        "usage",
        taken
          ? `port ${port} is in use: choose another with --port`
          : `port ${port}: ${cause.message}`,
        { cause },
      );
    });
    const { port: used } = app.server.address() as AddressInfo;
    onListening(`http://${host}:${used}/`);
    if (!signal.aborted) await once(signal, "abort");
  } finally {
    app.server.closeAllConnections();
    await app.close();
  }
}
