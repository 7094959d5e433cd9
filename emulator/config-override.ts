import protoJson from "protobufjs/ext/protojson.js";
import textFormat from "protobufjs/ext/textformat.js";
import { modelConfigType } from "../client/triton/model-config.ts";
import { invalidArgument } from "./oip-error.ts";

/**
 * Converts a model configuration in JSON to the text of a `config.pbtxt`, so that one reader checks both.
 *
 * @throws {OipError} `invalid-argument` if it is not a model configuration.
 */
export function configTextOfJson(json: string): string {
  const type = modelConfigType();
  try {
    return textFormat.toText(type, protoJson.fromJsonString(type, json));
  } catch (error) {
    throw invalidArgument(
      `failed to parse the config override: ${(error as Error).message}`,
      error,
    );
  }
}
