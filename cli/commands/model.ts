import type { Command } from "commander";
import { registerModelCheck } from "../model/model-check.ts";
import { registerModelDeploy } from "../model/model-deploy.ts";
import { registerModelExport } from "../model/model-export.ts";
import { registerModelGenerate } from "../model/model-generate.ts";
import { registerModelImport } from "../model/model-import.ts";
import { registerModelPipeline } from "../model/model-pipeline.ts";
import { registerModelPrepare } from "../model/model-prepare.ts";
import { registerModelPull } from "../model/model-pull.ts";
import { registerModelRepository } from "../model/model-repository.ts";

/** `clipstack model …`: subcommands for the model files that the servers load. */
export function registerModel(program: Command): void {
  const model = program.command("model");
  registerModelPull(model);
  registerModelCheck(model);
  registerModelExport(model);
  registerModelImport(model);
  registerModelPrepare(model);
  registerModelGenerate(model);
  registerModelRepository(model);
  registerModelPipeline(model);
  registerModelDeploy(model);
}
