import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { dockerDocument } from "../artefact/test-artefact.ts";
import { openHttpClient } from "../bench/run/http-client.ts";
import { requireKeys } from "./verify-deployed.ts";

test("fails when a service asks for a key and there is none, and names both variables", () => {
  const environment = dockerDocument().output.environment.value;
  const asking = {
    ...environment,
    services: environment.services.map((it) => ({ ...it, authorization: "bearer" as const })),
  };
  expect(() => requireKeys(asking, undefined, "INFERENCE_API_KEY")).toThrow(
    "INFERENCE_API_KEY must be set: two-services/embed asks for a key, the value of TF_VAR_embed_api_key at its deployment",
  );
  requireKeys(asking, "a-key", "INFERENCE_API_KEY");
  requireKeys(environment, undefined, "INFERENCE_API_KEY");
});

test("sends the key to its own server and to no other", async () => {
  const got: (string | undefined)[] = [];
  const listen = async () => {
    const server = createServer((request, response) => {
      got.push(request.headers.authorization);
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
  expect(got).toEqual(["Bearer a-key", "Bearer another", undefined]);
});
