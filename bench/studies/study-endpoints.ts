import type { RequestedEndpoint } from "../measure/choose-endpoints.ts";
import type { StudyId } from "../record/study-result.ts";
import { studies } from "./registry.ts";
import { optionalEndpoint, type SourceChange, type Study } from "./study.ts";

/** Every endpoint with its default payload format. */
const allEndpoints: readonly RequestedEndpoint[] = [
  optionalEndpoint("embed-http", "jpeg"),
  optionalEndpoint("onnx-http"),
  optionalEndpoint("onnx-grpc"),
  optionalEndpoint("trt-http"),
  optionalEndpoint("trt-grpc"),
];

/** Endpoints that a study measures, given those of the command line. */
export function endpointsOf(
  study: Study,
  requested: readonly RequestedEndpoint[],
): readonly RequestedEndpoint[] {
  if (study.endpointsOf !== undefined) return study.endpointsOf(requested);
  return requested.length === 0 ? allEndpoints : requested;
}

/** Endpoints that several studies measure, given those of the command line. */
export function endpointsOfStudies(
  ids: readonly StudyId[],
  requested: readonly RequestedEndpoint[],
): readonly RequestedEndpoint[] {
  return studies
    .filter(({ id }) => ids.includes(id))
    .flatMap((study) => endpointsOf(study, requested));
}

/** Endpoints that studies require of an environment. */
export function neededBy(
  group: readonly Study[],
  requested: readonly RequestedEndpoint[],
): SourceChange {
  const endpoints = group.flatMap((study) => endpointsOf(study, requested));
  return { endpoints: [...new Set(endpoints.map(({ endpoint }) => endpoint))] };
}
