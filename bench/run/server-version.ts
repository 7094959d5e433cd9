import { z } from "zod";
import { embedPaths } from "../../contract/embed-api.ts";
import { jsonOf } from "./http-client.ts";
import { endpointsOf, type ServiceUnderTest } from "./service-under-test.ts";

const timeoutMs = 10_000;

const openApi = z.object({ info: z.object({ version: z.string() }) });

/**
 * What a service says it is: a Triton by its server metadata, an embed server by its API description. `undefined`
 * where it does not say; whether it should is what the endpoints check asks.
 */
export async function serverVersion(service: ServiceUnderTest): Promise<string | undefined> {
  const [target] = endpointsOf(service);
  if (target === undefined) return undefined;
  try {
    if (target.endpoint.protocol === "embed-http") {
      const answer = await service.http.send(`${target.url}${embedPaths.openapi}`, { timeoutMs });
      return `clipstack embed API ${openApi.parse(jsonOf(answer)).info.version}`;
    }
    const { name, version } = await service.transport(target).serverMetadata({ timeoutMs });
    return `${name} ${version}`;
  } catch {
    return undefined;
  }
}
