import protobuf from "protobufjs";
import { modelConfigType } from "../triton/model-config.ts";
import { OipError } from "./oip-error.ts";

/**
 * A model configuration in JSON, as the text of a `config.pbtxt`: one reader then checks both.
 *
 * @throws {OipError} `invalid-argument`, when it is not a JSON object.
 */
export function configTextOfJson(json: string): string {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch (error) {
    throw new OipError(
      "invalid-argument",
      `failed to parse the config override: ${(error as Error).message}`,
      { cause: error },
    );
  }
  if (!isRecord(value)) {
    throw new OipError(
      "invalid-argument",
      "failed to parse the config override: not a JSON object",
    );
  }
  return messageText(modelConfigType(), value);
}

function messageText(type: protobuf.Type, message: Readonly<Record<string, unknown>>): string {
  return Object.entries(message)
    .flatMap(([key, value]) => {
      // not `type.fields[key]`: it has what every object has, such as `toString`
      const field = type.fieldsArray.find(({ name }) => name === key || lowerCamel(name) === key);
      const name = field?.name ?? key;
      if (value === null) return [];
      if (field instanceof protobuf.MapField && isRecord(value)) {
        return Object.entries(value).map(
          ([entryKey, item]) =>
            `${name} { key: ${JSON.stringify(entryKey)} value: ${valueText(field, item)} }`,
        );
      }
      const items = Array.isArray(value) ? value : [value];
      return items.map((item) => `${name}: ${valueText(field, item)}`);
    })
    .join("\n");
}

/** What the reader will refuse is passed on as it is: it has the words for it. */
function valueText(field: protobuf.FieldBase | undefined, value: unknown): string {
  const type = field?.resolvedType;
  if (isRecord(value)) {
    return type instanceof protobuf.Type ? `{ ${messageText(type, value)} }` : "{ }";
  }
  if (typeof value === "string") {
    const bare =
      type instanceof protobuf.Enum || (field?.type.includes("int") && /^-?\d+$/.test(value));
    return bare && /^[\w-]+$/.test(value) ? value : JSON.stringify(value);
  }
  return String(value);
}

function lowerCamel(name: string): string {
  return name.replaceAll(/_(\w)/g, (_, letter: string) => letter.toUpperCase());
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
