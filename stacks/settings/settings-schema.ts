import { z } from "zod";
import { stackNames, stackSchemas } from "./settings.ts";

/** JSON Schemas of environment files, for editors: `stacks/schemas/<stack>.schema.json`. */
export function settingsSchemaFiles(): readonly { readonly path: string; readonly text: string }[] {
  return stackNames.map((stack) => {
    // input side: a key with a default is optional
    const {
      properties,
      required = [],
      ...schema
    } = z.toJSONSchema(stackSchemas[stack], {
      io: "input",
    });
    const environment = {
      title: `Environment of the stack ${stack}`,
      ...schema,
      properties: {
        stack: { description: "Kind of deployment.", type: "string", const: stack },
        ...properties,
      },
      required: ["stack", ...required],
    };
    return {
      path: `stacks/schemas/${stack}.schema.json`,
      text: `${JSON.stringify(environment, null, 2)}\n`,
    };
  });
}
