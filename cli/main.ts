#!/usr/bin/env node
import "../contract/require-node.mjs";
import "./exit-with-parent.mjs";
import { ignoreClosedOutput } from "../artefact/closed-output.ts";
import { runCommand } from "./run-command.ts";

ignoreClosedOutput();
await runCommand(process.argv.slice(2));
