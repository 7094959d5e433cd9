import { z } from "zod";
import { reviewFile } from "./review-settings.ts";
import { stackNames, stackSchemas } from "./settings.ts";

/** JSON Schemas of environment files and of `.clipstack-review.yaml`, for editors: `stacks/schemas/<stack>.schema.json`, `review.schema.json`. */
export function settingsSchemaFiles(): readonly { readonly path: string; readonly text: string }[] {
  const title = "Settings of a review (.clipstack-review.yaml)";
  const review = { title, ...z.toJSONSchema(reviewFile, { io: "input" }) };
  const environments = stackNames.map((stack) => {
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
    return [stack, environment] as const;
  });
  return [...environments, ["review", review] as const].map(([name, schema]) => ({
    path: `stacks/schemas/${name}.schema.json`,
    text: `${JSON.stringify(schema, null, 2)}\n`,
  }));
}
