import {
  Client,
  credentials,
  Metadata,
  type MethodDefinition,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import { afterAll, beforeAll, expect, test } from "vitest";
import { inferenceService, methodOf } from "../client/triton/wire-grpc.ts";
import {
  closedHeader,
  grpcRestrictionPrefix,
  modelControlHeader,
} from "../contract/triton-flags.ts";

export interface RestrictedServer {
  /** `http://host:port`. */
  readonly url: string;
  /** `host:port`. */
  readonly grpcTarget: string;
  stop(): Promise<void>;
}

/** Tests of a server started with `restrictControl("key")`, this key and `--model-control-mode=explicit`. */
export function testModelControl(
  key: string,
  model: string,
  start: () => Promise<RestrictedServer>,
) {
  let server: RestrictedServer;
  let client: Client;
  beforeAll(async () => {
    server = await start();
    client = new Client(server.grpcTarget, credentials.createInsecure());
  }, 60_000);
  afterAll(async () => {
    client?.close();
    await server?.stop();
  });

  const post = (path: string, headers: Readonly<Record<string, string>> = {}) =>
    fetch(`${server.url}/v2/repository/${path}`, {
      method: "POST",
      body: "{}",
      headers: { "content-type": "application/json", ...headers },
    });
  const call = <Response>(
    { path, requestSerialize, responseDeserialize }: MethodDefinition<object, Response>,
    metadata: Readonly<Record<string, string>>,
  ) => {
    const sent = new Metadata();
    for (const [name, value] of Object.entries(metadata)) sent.set(name, value);
    return new Promise<Response | undefined>((resolve, reject) => {
      client.makeUnaryRequest(
        path,
        requestSerialize,
        responseDeserialize,
        {},
        sent,
        (error, answer) => (error === null ? resolve(answer) : reject(error)),
      );
    });
  };
  const index = async (metadata: Readonly<Record<string, string>>) =>
    (await call(methodOf("RepositoryIndex"), metadata))?.models ?? [];

  test.each(["index", `models/${model}/load`, `models/${model}/unload`])(
    "rejects %s over HTTP without the key",
    async (path) => {
      const wrong: readonly Record<string, string>[] = [{}, { [modelControlHeader]: `${key}x` }];
      for (const headers of wrong) {
        const response = await post(path, headers);
        expect(response.status).toBe(403);
        expect(await response.json()).toEqual({
          error: `This API is restricted, expecting header '${modelControlHeader}'`,
        });
      }
      expect((await fetch(`${server.url}/v2/models/${model}/ready`)).status).toBe(200);
    },
  );

  test("rejects model control over gRPC without the key", async () => {
    const header = `triton-grpc-protocol-${modelControlHeader}`;
    const wrong: readonly Record<string, string>[] = [
      {},
      { [modelControlHeader]: key },
      { [header]: `${key}x` },
    ];
    for (const metadata of wrong) {
      const { code, details } = await index(metadata).then(
        () => Promise.reject(new Error("it was accepted")),
        (error: ServiceError) => error,
      );
      expect({ code, details }).toEqual({
        code: status.UNAVAILABLE,
        details: `This protocol is restricted, expecting header '${header}'`,
      });
    }
    expect((await index({ [header]: key })).map(({ name }) => name)).toContain(model);
  });

  test.each(["systemsharedmemory/status", "cudasharedmemory/status", "trace/setting", "logging"])(
    "closes %s over HTTP, with the key too",
    async (path) => {
      const headers = { [modelControlHeader]: key };
      const response = await fetch(`${server.url}/v2/${path}`, { headers });
      expect(response.status).toBe(403);
      expect(await response.json()).toEqual({
        error: `This API is restricted, expecting header '${closedHeader}'`,
      });
    },
  );

  test.each(["SystemSharedMemoryStatus", "CudaSharedMemoryStatus", "TraceSetting", "LogSettings"])(
    "closes %s over gRPC, with the key too",
    async (name) => {
      const metadata = { [`${grpcRestrictionPrefix}${modelControlHeader}`]: key };
      await expect(call(inferenceService[name]!, metadata)).rejects.toMatchObject({
        code: status.UNAVAILABLE,
        details: `This protocol is restricted, expecting header '${grpcRestrictionPrefix}${closedHeader}'`,
      });
    },
  );

  test("loads a model if the request has the key", async () => {
    expect((await post(`models/${model}/load`, { [modelControlHeader]: key })).status).toBe(200);
  });
}
