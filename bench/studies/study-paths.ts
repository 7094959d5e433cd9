import type { StudyId } from "../record/bench-record.ts";
import type { AskedPath } from "../run/bench-run.ts";
import { studies } from "./registry.ts";
import { optionalPath, type SourceChange, type Study } from "./study.ts";

/** Every endpoint with its default payload format. */
const allPaths: readonly AskedPath[] = [
  optionalPath("embed-http", "encoded"),
  optionalPath("onnx-http"),
  optionalPath("onnx-grpc"),
  optionalPath("trt-http"),
  optionalPath("trt-grpc"),
];

/** Endpoints that a study measures, given those of the command line. */
export function pathsOf(study: Study, requested: readonly AskedPath[]): readonly AskedPath[] {
  if (study.pathsOf !== undefined) return study.pathsOf(requested);
  return requested.length === 0 ? allPaths : requested;
}

/** Endpoints that several studies measure, given those of the command line. */
export function pathsOfStudies(
  ids: readonly StudyId[],
  requested: readonly AskedPath[],
): readonly AskedPath[] {
  return studies.filter(({ id }) => ids.includes(id)).flatMap((study) => pathsOf(study, requested));
}

/** Endpoints and models that studies require of an environment. */
export function neededBy(group: readonly Study[], requested: readonly AskedPath[]): SourceChange {
  const paths = group.flatMap((study) => pathsOf(study, requested));
  return {
    paths: [...new Set(paths.map(({ path }) => path))],
    variants: paths.some(({ path, payload }) => path !== "embed-http" && payload !== "fp32"),
  };
}
