import { InvalidArgumentError, Option } from "commander";
import { type OpenOptions, openPhotoDatabase, type PhotoDatabase } from "./photo-database.ts";

/** `--db FILE`, of every command. */
export const databaseOption = () =>
  new Option("--db <file>", "what is known of the photos, a SQLite file").default("photos.db");

/** Use the database, and close it whatever happens. */
export async function withDatabase<Result>(
  file: string,
  work: (database: PhotoDatabase) => Promise<Result>,
  options?: OpenOptions,
): Promise<Result> {
  const database = openPhotoDatabase(file, options);
  try {
    return await work(database);
  } finally {
    database.close();
  }
}

/** Ctrl-C once: end in good order. Twice: at once, and the next run goes on where the last transaction ended. */
export async function untilInterrupt<Result>(
  work: (signal: AbortSignal) => Promise<Result>,
): Promise<Result> {
  const controller = new AbortController();
  const stop = () => controller.abort();
  process.once("SIGINT", stop);
  process.once("SIGTERM", stop);
  try {
    return await work(controller.signal);
  } finally {
    process.off("SIGINT", stop);
    process.off("SIGTERM", stop);
  }
}

/** A parser of an option that is a whole number. */
export function integerOf(min: number, max: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (value.trim() === "" || !Number.isInteger(number) || number < min || number > max) {
      throw new InvalidArgumentError(`It must be ${min} to ${max}.`);
    }
    return number;
  };
}

/** A parser of an option that is a number. */
export function numberOf(min: number, max: number): (value: string) => number {
  return (value) => {
    const number = Number(value);
    if (value.trim() === "" || !(number >= min && number <= max)) {
      throw new InvalidArgumentError(`It must be ${min} to ${max}.`);
    }
    return number;
  };
}
