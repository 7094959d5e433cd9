import { resolve } from "node:path";
import { Interrupted, onInterrupt } from "../../artefact/interrupt.ts";
import type { VerifyRecord } from "../../bench/record/record.ts";
import type { Modality, ModelSpec } from "../../contract/model-spec.ts";
import { UserError } from "../../contract/user-error.ts";
import {
  projectFolder,
  projectRepository,
  reportsFolder,
} from "../../model-tools/files/folders.ts";
import {
  recordText,
  reportName,
  type SavedReports,
  saveReports,
} from "../../report/save-reports.ts";
import type { VerifyEvent } from "../../verify/check-run.ts";
import { verify } from "../../verify/verify.ts";
import { verifyDeployed } from "../../verify/verify-deployed.ts";
import { verifyReport } from "../../verify/verify-report.ts";
import { deployedEnvironments } from "../cluster/deployed-environments.ts";
import { environmentAtAddresses } from "../cluster/environment-at-addresses.ts";
import { pytorchFor } from "../model/pytorch-baseline.ts";
import { environmentFiles, filesWithHelm, synthesizeUnlessEdited } from "../shared/artefact.ts";
import { chooseModel, requireOneTower, simulationServer } from "./choose-model.ts";
import type { RunArguments } from "./run-options.ts";
import {
  checkedServers,
  endpointsOf,
  type ServerArguments,
  verifyServers,
} from "./verify-servers.ts";

export const verifyTargets = ["simulation", "deployed"] as const;

export interface VerifyArguments extends RunArguments, ServerArguments {
  /** Local simulation, or the deployed containers or pods. */
  readonly target: (typeof verifyTargets)[number];
  /** Whether to synthesize first. Files edited by hand are not overwritten. */
  readonly synth: boolean;
  /** Whether an environment without the files of its models is skipped. @default - it is an error */
  readonly skipUnavailable?: boolean;
  /** Environments of a run without names. @default - all */
  readonly unnamed?: readonly string[];
  /** Environments that run the tiny model, whatever `weights` is. @default - none */
  readonly tiny?: readonly string[];
}

const reportSubject = ({ environments }: VerifyRecord) =>
  environments.map(({ name }) => name).join("+") || "servers";

/**
 * Synthesizes, starts and checks environments, and saves the record and its reports.
 *
 * @param environments - Names; empty: all environments.
 * @throws {Interrupted} on SIGINT and SIGTERM.
 */
export async function verifyEnvironments(
  environments: readonly string[],
  args: VerifyArguments,
  onEvent: (event: VerifyEvent) => void,
  onNotice: (line: string) => void,
): Promise<{ readonly record: VerifyRecord; readonly saved: SavedReports }> {
  const { portOffset, tiny = [], url } = args;
  const servers = checkedServers(environments, args);
  if (
    url !== undefined &&
    servers === undefined &&
    (environments.length !== 1 || args.target === "deployed")
  ) {
    throw new UserError("--url requires the name of one environment, and no --target deployed");
  }
  const weightsOf = (environment: string) => (tiny.includes(environment) ? "tiny" : args.weights);
  const interrupt = onInterrupt();
  const { signal } = interrupt;
  try {
    if (args.synth && args.target === "simulation" && servers === undefined) {
      await synthesizeUnlessEdited(environments, {
        onNotice,
        onSynthesize: () => onEvent({ kind: "phase", text: "synthesize" }),
        strict: true,
      });
    }
    const chosen = environments.length > 0 ? environments : (args.unnamed ?? []);
    const files =
      servers === undefined ? filesWithHelm(environments, environmentFiles(chosen), onNotice) : [];
    const common = {
      project: projectFolder,
      chooseModel: (
        spec: ModelSpec,
        modality: Modality,
        own: string | undefined,
        environment: string,
      ) => {
        const weights = weightsOf(environment);
        if (args.modality === undefined) requireOneTower(spec, weights);
        return chooseModel({ spec, modality }, weights, onEvent, own);
      },
      portOffset,
      secondsPerEndpoint: args.seconds,
      signal,
      onEvent,
    };
    const record =
      servers !== undefined
        ? await verifyServers({ ...common, ...servers })
        : url !== undefined || args.target === "deployed"
          ? await verifyDeployed({
              ...common,
              environments:
                url === undefined
                  ? await deployedEnvironments(environments, files, {
                      portOffset,
                      signal,
                      onNotice,
                    })
                  : files.map((file) => environmentAtAddresses(file, endpointsOf(url))),
            })
          : await verify({
              ...common,
              environments: files,
              serverCommand: simulationServer,
              ...(await pytorchFor(files, { onProgress: onNotice, signal })),
              modelRepository: projectRepository,
              replaceModels: (environment) => weightsOf(environment) !== "generated",
              skipUnavailable: args.skipUnavailable ?? false,
            });
    const folder = resolve(args.report ?? reportsFolder);
    const name = reportName(record.startedAt, reportSubject(record));
    return { record, saved: saveReports(folder, name, recordText(record), verifyReport(record)) };
  } catch (error) {
    if (signal.aborted) throw new Interrupted("interrupted", { cause: error });
    throw error;
  } finally {
    interrupt.remove();
  }
}
