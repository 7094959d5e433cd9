import { Option } from "commander";
import { protocolNames } from "../../target/open/server.ts";

/** Option of the commands that send requests to servers of any kind. */
export function protocolOption(): Option {
  return new Option(
    "--protocol <name>",
    "with --url of a server: its protocol (default: detected from the routes that it answers)",
  ).choices(protocolNames);
}
