import { setMaxListeners } from "node:events";
import {
  type handleBidiStreamingCall,
  type handleUnaryCall,
  Metadata,
  Server,
  type ServerDuplexStream,
  type ServerUnaryCall,
  type ServiceDefinition,
  type ServiceError,
  type sendUnaryData,
  status,
  type UntypedHandleCall,
  type UntypedServiceImplementation,
} from "@grpc/grpc-js";
import { WireError } from "../client/triton/wire.ts";
import {
  channelOptions,
  decodeGrpcRequest,
  encodeGrpcResponse,
  healthService,
  type InferenceMethods,
  inferenceService,
  type ModelInferRequest,
  type ModelInferResponse,
  methodOf,
} from "../client/triton/wire-grpc.ts";
import { type ControlApi, controlApis, type RestrictedApis } from "../contract/triton-flags.ts";
import { CallCounter } from "../http/drain.ts";
import { RequestTrace } from "../http/request-trace.ts";
import { GrpcArrivals } from "./grpc-arrivals.ts";
import { healthHandlers } from "./grpc-health.ts";
import { type InferHead, readHead } from "./infer-head.ts";
import type { ModelRegistry } from "./model-registry.ts";
import { OipAdmission, oipErrorOf } from "./oip-admission.ts";
import { errorWithLocation, invalidArgument, OipError, type OipErrorCode } from "./oip-error.ts";
import { modelMetadata, modelStatistics, serverMetadata } from "./oip-metadata.ts";

export interface OipGrpcOptions {
  /** Receives internal errors; their details are not sent to the client. */
  readonly log?: (line: string) => void;
  /** Counts received calls without a response. */
  readonly accepted?: CallCounter;
  /**
   * Bounds the queue. Shared with the HTTP server.
   *
   * @default - one with the default limits
   */
  readonly admission?: OipAdmission;
  /**
   * Maximum message size, in bytes. Triton's only limit is 2 GiB.
   *
   * @default - no limit
   */
  readonly maxInputBytes?: number;
  /**
   * Metadata that the restricted APIs require.
   *
   * @default - none
   */
  readonly restricted?: RestrictedApis;
  /** Whether requests that continue a trace are traced. @default false */
  readonly tracing?: boolean;
}

/** Builds the server of the Open Inference Protocol and of health checks over gRPC; the caller binds it. */
export function buildOipGrpcServer(registry: ModelRegistry, options: OipGrpcOptions = {}): Server {
  const {
    log = () => {},
    accepted = new CallCounter(),
    maxInputBytes = -1,
    restricted = {},
    tracing = false,
    admission = new OipAdmission(registry),
  } = options;
  const fail = (error: unknown) => serviceError(oipErrorOf(error), log);
  const arrivals = new GrpcArrivals({
    reserve(model, bytes, onEvict, client) {
      const served = registry.models.find(({ name }) => name === model);
      return admission.reserve(served, bytes, onEvict, client);
    },
    fail,
  });
  const server = new Server({
    ...channelOptions,
    "grpc.max_receive_message_length": maxInputBytes,
    interceptors: [arrivals.interceptor],
  });
  const unary = unaryHandlers(accepted, fail);
  const handlers = {
    ...metadataHandlers(registry, unary),
    ...inferHandlers({ registry, admission, arrivals, accepted, fail, tracing }),
    ...controlHandlers(registry, unary),
  } satisfies Record<keyof InferenceMethods | "ModelStreamInfer", UntypedHandleCall>;
  const all = { ...unsupported(Object.keys(handlers)), ...handlers };
  server.addService(undecodedService, restrictedHandlers(all, restricted));
  server.addService(healthService, healthHandlers(registry));
  return server;
}

type Handle<Name extends keyof InferenceMethods> = (
  request: InferenceMethods[Name]["request"],
) => InferenceMethods[Name]["response"] | Promise<InferenceMethods[Name]["response"]>;

type UnaryCall<Name extends keyof InferenceMethods> = handleUnaryCall<
  InferenceMethods[Name]["request"],
  InferenceMethods[Name]["response"]
>;

type UnaryHandlers = <Name extends keyof InferenceMethods>(handle: Handle<Name>) => UnaryCall<Name>;

/** Returns a function that turns request handlers into handlers of unary calls. */
function unaryHandlers(
  accepted: CallCounter,
  fail: (error: unknown) => ServiceError,
): UnaryHandlers {
  return (handle) => async (call, callback) => {
    try {
      callback(null, await accepted.during(() => handle(call.request)));
    } catch (error) {
      callback(fail(error));
    }
  };
}

function metadataHandlers(registry: ModelRegistry, unary: UnaryHandlers) {
  return {
    ServerLive: unary<"ServerLive">(() => ({ live: true })),
    ServerReady: unary<"ServerReady">(() => ({ ready: registry.ready })),
    ModelReady: unary<"ModelReady">(({ name, version }) => ({
      ready: registry.modelReady(name, version),
    })),
    ServerMetadata: unary<"ServerMetadata">(() => serverMetadata),
    ModelMetadata: unary<"ModelMetadata">(({ name, version }) => {
      const model = registry.model(name, version);
      const versions = version
        ? [model.version]
        : registry.models.filter((other) => other.name === name).map((other) => other.version);
      return modelMetadata(model, versions);
    }),
    ModelConfig: unary<"ModelConfig">(({ name, version }) => ({
      config: registry.model(name, version).config,
    })),
    ModelStatistics: unary<"ModelStatistics">(({ name, version }) => ({
      model_stats: registry.statistics(name, version).map(modelStatistics),
    })),
  };
}

interface InferOptions {
  readonly registry: ModelRegistry;
  readonly admission: OipAdmission;
  readonly arrivals: GrpcArrivals;
  readonly accepted: CallCounter;
  readonly fail: (error: unknown) => ServiceError;
  readonly tracing: boolean;
}

function inferHandlers(options: InferOptions) {
  const { registry, admission, arrivals, accepted, fail, tracing } = options;
  /** @param message - Encoded: a request without capacity is rejected before it is decoded. */
  const infer = async (message: Buffer, signal: AbortSignal): Promise<ModelInferResponse> => {
    let reservation = arrivals.take(message);
    try {
      const head = readHead(message);
      const model = registry.model(head.model_name, head.model_version);
      reservation ??= admission.reserve(model, message.byteLength);
      const request = decodeGrpcRequest(decodeMessage(message));
      const items = model.itemCount(request.inputs.map(({ shape }) => shape));
      admission.checkCapacity(model, reservation, items);
      const { id, outputs } = await model.infer(request, signal);
      admission.recordCompleted(items);
      return encodeGrpcResponse(
        { id, modelName: model.name, modelVersion: model.version },
        outputs.map(({ tensor }) => tensor),
      );
    } finally {
      reservation?.release();
    }
  };
  return {
    ModelInfer: async (
      call: ServerUnaryCall<Buffer, ModelInferResponse>,
      callback: sendUnaryData<ModelInferResponse>,
    ) => {
      const trace = tracing ? traceOf(call.metadata) : undefined;
      try {
        callback(null, await accepted.during(() => infer(call.request, cancelled(call))));
        trace?.end({});
      } catch (error) {
        const failure = fail(error);
        callback(failure);
        trace?.end({}, failure.code === status.INTERNAL ? "INTERNAL" : undefined);
      }
    },
    ModelStreamInfer: streamInfer(
      (request, signal) => accepted.during(() => infer(request, signal)),
      fail,
      registry.exit,
    ),
  };
}

/** Handlers that reject the calls of restricted APIs without the required metadata. */
function restrictedHandlers(
  handlers: Readonly<Record<string, UntypedHandleCall>>,
  restricted: RestrictedApis,
): Record<string, UntypedHandleCall> {
  const api = (method: string) => controlApis.find((each) => methodsOf[each].test(method));
  return Object.fromEntries(
    Object.entries(handlers).map(([method, handler]) => {
      const name = api(method);
      const header = name && restricted[name];
      if (header === undefined) return [method, handler];
      const handle = handler as handleUnaryCall<unknown, unknown>;
      const guarded: handleUnaryCall<unknown, unknown> = (call, callback) => {
        if (call.metadata.get(header.name)[0] === header.value) return handle(call, callback);
        const details = `This protocol is restricted, expecting header '${header.name}'`;
        callback({ code: status.UNAVAILABLE, details });
      };
      return [method, guarded];
    }),
  );
}

const methodsOf = {
  "shared-memory": /SharedMemory/,
  trace: /^TraceSetting$/,
  logging: /^LogSettings$/,
  "model-repository": /^Repository/,
} as const satisfies Record<ControlApi, RegExp>;

/** Model control API. */
function controlHandlers(registry: ModelRegistry, unary: UnaryHandlers) {
  return {
    RepositoryIndex: unary<"RepositoryIndex">(async ({ ready }) => ({
      models: (await registry.index({ readyOnly: ready ?? false })).map((entry) => ({
        name: entry.name,
        version: entry.version ?? "",
        state: entry.state ?? "",
        reason: entry.reason ?? "",
      })),
    })),
    RepositoryModelLoad: unary<"RepositoryModelLoad">(async ({ model_name, parameters }) => {
      const file = Object.keys(parameters ?? {}).find((name) => name !== "config");
      if (file !== undefined) {
        throw new OipError(
          "unsupported",
          `load parameter '${file}' is not supported by this server`,
        );
      }
      await registry.load(model_name, parameters?.config?.string_param);
      return {};
    }),
    RepositoryModelUnload: unary<"RepositoryModelUnload">(async ({ model_name, parameters }) => {
      const withMembers = parameters?.unload_dependents?.bool_param ?? false;
      await registry.unload(model_name, { withMembers });
      return {};
    }),
  };
}

/** Inference service whose handlers receive inference requests as undecoded bytes. */
const undecodedService: ServiceDefinition = {
  ...inferenceService,
  ...Object.fromEntries(
    ["ModelInfer", "ModelStreamInfer"].map((name) => [
      name,
      { ...inferenceService[name]!, requestDeserialize: (message: Buffer) => message },
    ]),
  ),
};

/** @throws {OipError} for an invalid message */
function decodeMessage(message: Buffer): ModelInferRequest {
  try {
    return methodOf("ModelInfer").requestDeserialize(message);
  } catch (error) {
    throw invalidArgument(`failed to parse the request: ${(error as Error).message}`, error);
  }
}

/** Handlers of the methods that this server does not implement. */
function unsupported(implemented: readonly string[]): UntypedServiceImplementation {
  const names = Object.keys(inferenceService).filter((name) => !implemented.includes(name));
  return Object.fromEntries(
    names.map((name): [string, handleUnaryCall<unknown, unknown>] => [
      name,
      (_call, callback) =>
        callback({
          code: status.UNIMPLEMENTED,
          details: `${name} is not supported by this server`,
        }),
    ]),
  );
}

interface StreamResponse {
  readonly error_message: string;
  readonly infer_response?: ModelInferResponse;
}

/** Every request has exactly one response. */
const finalResponse = { triton_final_response: { bool_param: true } };

/** Runs each request of a stream as an inference; responses are sent in the order of the requests. */
function streamInfer(
  infer: (message: Buffer, signal: AbortSignal) => Promise<ModelInferResponse>,
  fail: (error: unknown) => ServiceError,
  exit: AbortSignal,
): handleBidiStreamingCall<Buffer, StreamResponse> {
  return (call) => {
    const signal = cancelled(call);
    let last: Promise<unknown> = Promise.resolve();
    call.on("data", (message: Buffer) => {
      const pending = infer(message, signal).then(
        (response): StreamResponse => ({
          error_message: "",
          infer_response: { ...response, parameters: finalResponse },
        }),
        (error): StreamResponse => ({
          error_message: fail(error).details,
          infer_response: { ...headOf(message), outputs: [], raw_output_contents: [] },
        }),
      );
      last = Promise.all([last, pending]).then(([, response]) => {
        if (signal.aborted || call.write(response) || call.isPaused()) return;
        // a client that does not read responses may not send more requests
        call.pause();
        call.once("drain", () => call.resume());
      });
    });
    call.on("end", () => void last.then(() => call.end()));
    // an open stream would delay the stop until its timeout
    const onExit = () => void last.then(() => call.end());
    exit.addEventListener("abort", onExit, { once: true });
    call.once("close", () => exit.removeEventListener("abort", onExit));
  };
}

/** Head of a message; empty for an invalid one. */
function headOf(message: Buffer): InferHead {
  try {
    return readHead(message);
  } catch {
    return { model_name: "", model_version: "", id: "" };
  }
}

/** Continues the trace of a call's metadata. */
function traceOf(metadata: Metadata): RequestTrace {
  const [traceparent] = metadata.get("traceparent");
  return new RequestTrace("InferRequest", { traceparent: traceparent?.toString() });
}

function cancelled(
  call: ServerUnaryCall<unknown, unknown> | ServerDuplexStream<unknown, unknown>,
): AbortSignal {
  const controller = new AbortController();
  // every request of a stream adds a listener
  setMaxListeners(0, controller.signal);
  if (call.cancelled) controller.abort();
  call.once("cancelled", () => controller.abort());
  return controller.signal;
}

const statusOfCode: Readonly<Record<OipErrorCode, status>> = {
  "invalid-argument": status.INVALID_ARGUMENT,
  "not-found": status.NOT_FOUND,
  overloaded: status.RESOURCE_EXHAUSTED,
  "too-slow": status.CANCELLED,
  unavailable: status.UNAVAILABLE,
  unsupported: status.UNIMPLEMENTED,
  internal: status.INTERNAL,
  cancelled: status.CANCELLED,
};

/**
 * Maximum length of an error's details, in characters. gRPC sends them in a header; a header above its size limit, for example
 * with a very long model name, is never sent, and the client times out.
 */
const maxDetails = 500;

function serviceError(error: unknown, log: (line: string) => void): ServiceError {
  const as = (code: status, message: string): ServiceError => {
    const details = message.slice(0, maxDetails);
    return Object.assign(new Error(details), { code, details, metadata: new Metadata() });
  };
  if (error instanceof OipError) return as(statusOfCode[error.code], error.message);
  if (error instanceof WireError) {
    return as(
      error.code === "unsupported" ? status.UNIMPLEMENTED : status.INVALID_ARGUMENT,
      error.message,
    );
  }
  log(`internal error: ${errorWithLocation(error)}`);
  return as(status.INTERNAL, "internal error");
}
