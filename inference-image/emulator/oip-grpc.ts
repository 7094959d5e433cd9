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
import { WireError } from "../../client/triton/wire.ts";
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
} from "../../client/triton/wire-grpc.ts";
import type { RequiredHeader } from "../../contract/triton-flags.ts";
import { CallCounter } from "../http/drain.ts";
import { type InferHead, readHead } from "./infer-head.ts";
import type { ModelRegistry } from "./model-registry.ts";
import { OipAdmission } from "./oip-admission.ts";
import { OipError, type OipErrorCode, whereOf } from "./oip-error.ts";
import { modelMetadata, modelStatistics, serverMetadata } from "./oip-metadata.ts";

export interface OipGrpcOptions {
  /** Told of what went wrong on our side; the client only hears that it did. */
  readonly log?: (line: string) => void;
  /** Counts the calls that were received whole, until they have their result. */
  readonly accepted?: CallCounter;
  /**
   * Bounds what waits. The HTTP server shares it.
   *
   * @default - one with the default limits
   */
  readonly admission?: OipAdmission;
  /**
   * Largest message, in bytes. Triton has no limit but 2 GiB.
   *
   * @default - no limit
   */
  readonly maxInputBytes?: number;
  /**
   * Metadata that the model control API requires.
   *
   * @default - none
   */
  readonly modelControl?: RequiredHeader;
}

/** Open Inference Protocol and health checks over gRPC. It does not listen: the caller binds it. */
export function buildOipGrpcServer(registry: ModelRegistry, options: OipGrpcOptions = {}): Server {
  const {
    log = () => {},
    accepted = new CallCounter(),
    maxInputBytes = -1,
    modelControl,
  } = options;
  const { admission = new OipAdmission(registry) } = options;
  const server = new Server({
    ...channelOptions,
    "grpc.max_receive_message_length": maxInputBytes,
  });
  const fail = (error: unknown) => serviceError(error, log);

  const unary = <Name extends keyof InferenceMethods>(
    answer: (
      request: InferenceMethods[Name]["request"],
      call: ServerUnaryCall<unknown, unknown>,
    ) => InferenceMethods[Name]["response"] | Promise<InferenceMethods[Name]["response"]>,
  ): handleUnaryCall<InferenceMethods[Name]["request"], InferenceMethods[Name]["response"]> => {
    return async (call, callback) => {
      try {
        callback(null, await accepted.during(() => answer(call.request, call)));
      } catch (error) {
        callback(fail(error));
      }
    };
  };

  /** A unary call of the model control API. */
  const control = <Name extends keyof InferenceMethods>(
    answer: (
      request: InferenceMethods[Name]["request"],
    ) => Promise<InferenceMethods[Name]["response"]>,
  ): ReturnType<typeof unary<Name>> => {
    const handle = unary<Name>(answer);
    return (call, callback) => {
      if (modelControl === undefined) return handle(call, callback);
      if (call.metadata.get(modelControl.name)[0] === modelControl.value) {
        return handle(call, callback);
      }
      const details = `This protocol is restricted, expecting header '${modelControl.name}'`;
      callback({ code: status.UNAVAILABLE, details });
    };
  };

  /** @param message - As it came: what finds no room is not decoded. */
  const infer = async (message: Buffer, signal: AbortSignal): Promise<ModelInferResponse> => {
    const head = readHead(message);
    const model = registry.model(head.model_name, head.model_version);
    const place = admission.reserve(model, message.byteLength);
    try {
      const request = decodeGrpcRequest(decodeMessage(message));
      const items = model.itemCount(request.inputs.map(({ shape }) => shape));
      admission.checkCapacity(model, place, items);
      const { id, outputs } = await model.infer(request, signal);
      admission.recordCompleted(items);
      return encodeGrpcResponse(
        { id, modelName: model.name, modelVersion: model.version },
        outputs.map(({ tensor }) => tensor),
      );
    } finally {
      place.release();
    }
  };

  const handlers: Record<keyof InferenceMethods | "ModelStreamInfer", UntypedHandleCall> = {
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
    ModelInfer: async (
      call: ServerUnaryCall<Buffer, ModelInferResponse>,
      callback: sendUnaryData<ModelInferResponse>,
    ) => {
      try {
        callback(null, await accepted.during(() => infer(call.request, cancelled(call))));
      } catch (error) {
        callback(fail(error));
      }
    },
    ModelStreamInfer: streamInfer(
      (request, signal) => accepted.during(() => infer(request, signal)),
      fail,
      registry.exit,
    ),
    RepositoryIndex: control<"RepositoryIndex">(async ({ ready }) => ({
      models: (await registry.index({ readyOnly: ready ?? false })).map((entry) => ({
        name: entry.name,
        version: entry.version ?? "",
        state: entry.state ?? "",
        reason: entry.reason ?? "",
      })),
    })),
    RepositoryModelLoad: control<"RepositoryModelLoad">(async ({ model_name, parameters }) => {
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
    RepositoryModelUnload: control<"RepositoryModelUnload">(async ({ model_name }) => {
      await registry.unload(model_name);
      return {};
    }),
  };
  server.addService(undecodedService, { ...refusals(Object.keys(handlers)), ...handlers });
  server.addService(healthService, healthHandlers(registry));
  return server;
}

/** The service, with inference requests as they came. */
const undecodedService: ServiceDefinition = {
  ...inferenceService,
  ...Object.fromEntries(
    ["ModelInfer", "ModelStreamInfer"].map((name) => [
      name,
      { ...inferenceService[name]!, requestDeserialize: (message: Buffer) => message },
    ]),
  ),
};

/** @throws {OipError} when it is none. */
function decodeMessage(message: Buffer): ModelInferRequest {
  try {
    return methodOf("ModelInfer").requestDeserialize(message);
  } catch (error) {
    throw new OipError(
      "invalid-argument",
      `failed to parse the request: ${(error as Error).message}`,
      { cause: error },
    );
  }
}

/** Methods of the service that this server does not offer. */
function refusals(offered: readonly string[]): UntypedServiceImplementation {
  const names = Object.keys(inferenceService).filter((name) => !offered.includes(name));
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

/** Each request of the stream is an inference of its own; answers come in the order of the requests. */
function streamInfer(
  infer: (message: Buffer, signal: AbortSignal) => Promise<ModelInferResponse>,
  fail: (error: unknown) => ServiceError,
  exit: AbortSignal,
): handleBidiStreamingCall<Buffer, StreamResponse> {
  return (call) => {
    const signal = cancelled(call);
    let last: Promise<unknown> = Promise.resolve();
    call.on("data", (message: Buffer) => {
      const answer = infer(message, signal).then(
        (response): StreamResponse => ({ error_message: "", infer_response: response }),
        (error): StreamResponse => ({
          error_message: fail(error).details,
          infer_response: { ...headOf(message), outputs: [], raw_output_contents: [] },
        }),
      );
      last = Promise.all([last, answer]).then(([, response]) => {
        if (signal.aborted || call.write(response) || call.isPaused()) return;
        // who does not read the answers may ask nothing more
        call.pause();
        call.once("drain", () => call.resume());
      });
    });
    call.on("end", () => void last.then(() => call.end()));
    // an open stream would hold the stop until its time is over
    const onExit = () => void last.then(() => call.end());
    exit.addEventListener("abort", onExit, { once: true });
    call.once("close", () => exit.removeEventListener("abort", onExit));
  };
}

/** Empty where it cannot be read. */
function headOf(message: Buffer): InferHead {
  try {
    return readHead(message);
  } catch {
    return { model_name: "", model_version: "", id: "" };
  }
}

function cancelled(
  call: ServerUnaryCall<unknown, unknown> | ServerDuplexStream<unknown, unknown>,
): AbortSignal {
  const controller = new AbortController();
  // each request of a stream listens
  setMaxListeners(0, controller.signal);
  if (call.cancelled) controller.abort();
  call.once("cancelled", () => controller.abort());
  return controller.signal;
}

interface HealthRequest {
  readonly service: string;
}
interface HealthResponse {
  readonly status: "SERVING" | "NOT_SERVING" | "SERVICE_UNKNOWN";
}

/** The server as a whole, the inference service, and each model by its name. */
function healthHandlers(registry: ModelRegistry): UntypedServiceImplementation {
  const statusOf = (service: string): HealthResponse["status"] => {
    const whole = service === "" || service === "inference.GRPCInferenceService";
    if (whole) return registry.ready ? "SERVING" : "NOT_SERVING";
    return registry.modelReady(service) ? "SERVING" : "SERVICE_UNKNOWN";
  };
  const check: handleUnaryCall<HealthRequest, HealthResponse> = (call, callback) => {
    const answer = statusOf(call.request.service);
    if (answer === "SERVICE_UNKNOWN") {
      callback({ code: status.NOT_FOUND, details: `unknown service '${call.request.service}'` });
    } else {
      callback(null, { status: answer });
    }
  };
  return { Check: check };
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
 * Characters of an error's details. They travel in a header: one that is larger than its limit, such as the name of a
 * model that somebody made up, is never sent, and the caller waits.
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
  log(`internal error: ${whereOf(error)}`);
  return as(status.INTERNAL, "internal error");
}
