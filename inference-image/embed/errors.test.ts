import { expect, test } from "vitest";
import { TritonError } from "../../client/triton/transport.ts";
import { toEmbedError } from "./errors.ts";

test.each([
  [
    "no Triton server can be used: 10.0.0.7:8001: connect ECONNREFUSED 10.0.0.7:8001",
    "no Triton server can be used: upstream: connect ECONNREFUSED upstream",
  ],
  ["triton-0.models.svc:8001: not ready", "upstream: not ready"],
  ["[fd00::7]:8001: not ready", "upstream: not ready"],
  ["getaddrinfo ENOTFOUND triton.internal", "getaddrinfo ENOTFOUND upstream"],
  ["the model 'clip' is not ready: 2 of 3", "the model 'clip' is not ready: 2 of 3"],
])("a response does not name the upstream in '%s'", (problem, message) => {
  expect(toEmbedError(new TritonError("unavailable", problem)).message).toBe(message);
});
