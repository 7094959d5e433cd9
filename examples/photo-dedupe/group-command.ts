import { type Command, Option } from "commander";
import { databaseOption, integerOf, numberOf, withDatabase } from "./command-options.ts";
import { randomWeightsText } from "./embed-command.ts";
import {
  exactLimit,
  type GroupOptions,
  type GroupResult,
  group,
  groupKinds,
  linkages,
  methods,
} from "./group.ts";
import { shownJson, shownName } from "./shown-name.ts";

/** Least cosine of two photos that show the same. */
export const defaultThreshold = 0.95;
/** Most bits that differ. */
export const defaultDistance = 8;

type GroupArguments = Omit<GroupOptions, "progress"> & {
  readonly db: string;
  readonly list: boolean;
  readonly json: boolean;
};

/** `clipstack-dedupe group` */
export function registerGroup(program: Command): void {
  program
    .command("group")
    .description("put photos that show the same into groups")
    .addOption(databaseOption())
    .addOption(
      new Option("--by <what>", "what is compared").choices(groupKinds).default("embedding"),
    )
    .option("--threshold <cosine>", "least cosine", numberOf(-1, 1), defaultThreshold)
    .option(
      "--distance <bits>",
      "with --by hash: most of the 64 bits that differ",
      integerOf(0, 64),
      defaultDistance,
    )
    .addOption(
      new Option(
        "--linkage <linkage>",
        "components: a chain of similar photos is a group; complete: each is similar to each",
      )
        .choices(linkages)
        .default("components"),
    )
    .addOption(
      new Option(
        "--method <method>",
        `auto: exact up to ${exactLimit} photos, an HNSW index beyond`,
      )
        .choices(methods)
        .default("auto"),
    )
    .option("--list", "print the photos of each group", false)
    .option("--json", "print the groups as JSON", false)
    .addHelpText(
      "after",
      `
Examples:
  $ npx clipstack-dedupe group --threshold 0.97
  $ npx clipstack-dedupe group --by hash --distance 6 --list`,
    )
    .action(async ({ db, list, json, ...options }: GroupArguments) => {
      const result = await withDatabase(db, (database) => group(database, options));
      if (json) console.log(shownJson(result));
      else for (const line of groupText(result, list)) console.log(line);
    });
}

/** What was grouped, for people. */
export function groupText(result: GroupResult, list: boolean): readonly string[] {
  const { groups, photos, left, how, weights, seconds } = result;
  const grouped = groups.reduce((sum, { length }) => sum + length, 0);
  const lines = list ? groups.flatMap((paths) => [...paths.map(shownName), ""]) : [];
  lines.push(
    `${groups.length} groups with ${grouped} of ${photos} photos (${how}; ${seconds.toFixed(1)} s)`,
  );
  if (left > 0) lines.push(`${left} photos were not compared: they have no embedding yet`);
  if (weights === "random") lines.push(randomWeightsText);
  return lines;
}
