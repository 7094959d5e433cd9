import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { dockerDocument } from "../artefact/test-artefact.ts";
import { openHttpClient } from "../target/requests/http-client.ts";
import { requireKeys } from "./verify-deployed.ts";

test("fails if a service requires an API key and none is set, naming both variables", () => {
  const environment = dockerDocument().output.environment.value;
  const protectedEnvironment = {
    ...environment,
    services: environment.services.map((it) => ({ ...it, authorization: "bearer" as const })),
  };
  expect(() => requireKeys(protectedEnvironment, undefined, "INFERENCE_API_KEY")).toThrow(
    "INFERENCE_API_KEY must be set to the API key of two-services/embed, the value of TF_VAR_embed_api_key at its deployment or a key of the file in its setting keys",
  );
  requireKeys(protectedEnvironment, "a-key", "INFERENCE_API_KEY");
  requireKeys(environment, undefined, "INFERENCE_API_KEY");
});

test("sends the API key only to its own server", async () => {
  const received: (string | undefined)[] = [];
  const listen = async () => {
    const server = createServer((request, response) => {
      received.push(request.headers.authorization);
      response.end();
    }).listen(0, "127.0.0.1");
    onTestFinished(() => void server.close());
    await once(server, "listening");
    return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  };
  const [own, other] = [await listen(), await listen()];
  const http = openHttpClient(undefined, { origin: own, key: "a-key" });
  await http.send(`${own}/metrics`);
  await http.send(`${own}/embed`, { headers: { authorization: "Bearer another" } });
  await http.send(`${other}/metrics`);
  await http.close();
  expect(received).toEqual(["Bearer a-key", "Bearer another", undefined]);
});
