import { z } from "zod";
import { embedPaths } from "../../contract/embed-api.ts";
import { jsonOf } from "../requests/http-client.ts";
import type { TargetService } from "./target-service.ts";

const timeoutMs = 10_000;

const openApi = z.object({ info: z.object({ title: z.string(), version: z.string() }) });

/**
 * Version of a service, from Triton's server metadata or the embed server's API description. `undefined` if unavailable;
 * the endpoints check reports that.
 */
export async function serverVersion(service: TargetService): Promise<string | undefined> {
  const target = service.targets.find(
    ({ endpoint, url }) => endpoint.name !== undefined && url !== undefined,
  );
  if (target === undefined) return undefined;
  try {
    if (target.endpoint.protocol === "embed-http") {
      const response = await service.http.send(`${target.url}${embedPaths.openapi}`, { timeoutMs });
      const { title, version } = openApi.parse(jsonOf(response)).info;
      return `${title} ${version}`;
    }
    const { name, version } = await service.transport(target).serverMetadata({ timeoutMs });
    return `${name} ${version}`;
  } catch {
    return undefined;
  }
}
