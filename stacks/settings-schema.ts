import { z } from "zod";
import { environmentNames, stackSchemas } from "./settings.ts";

/** JSON Schemas of the settings files, for editors: `stacks/schemas/<environment>.schema.json`. */
export function settingsSchemaFiles(): readonly { readonly path: string; readonly text: string }[] {
  return environmentNames.map((environment) => {
    const schema = {
      title: `Settings of ${environment}`,
      // what a person writes: with a default, a key may be left out
      ...z.toJSONSchema(stackSchemas[environment], { io: "input" }),
    };
    return {
      path: `stacks/schemas/${environment}.schema.json`,
      text: `${JSON.stringify(schema, null, 2)}\n`,
    };
  });
}
