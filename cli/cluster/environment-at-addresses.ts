import { readEnvironment } from "../../artefact/artefact.ts";
import { UserError } from "../../contract/user-error.ts";
import type { AddressesSource } from "../../target/open/addresses.ts";
import type { DeployedEnvironment } from "../../target/service/deployed-environment.ts";
import { requireKeys } from "../../verify/verify-deployed.ts";
import type { SynthesizedFile } from "../shared/artefact.ts";
import { apiKeyVariable } from "./deployed-environments.ts";

/**
 * Services of an environment that Terraform did not deploy, at the addresses of some of their endpoints. Services without an address are
 * left out.
 */
export function environmentAtAddresses(
  file: SynthesizedFile,
  addresses: AddressesSource["endpoints"],
): DeployedEnvironment {
  const declared = readEnvironment(file.file, file.displayPath);
  const endpoints = declared.services.flatMap((service) => service.endpoints);
  const urls = new Map(
    addresses.map(({ endpoint, url }) => {
      const own = endpoints.find(({ name }) => name === endpoint);
      if (own !== undefined) return [own.url, url];
      const known = endpoints.flatMap(({ name }) => name ?? []);
      throw new UserError(
        `--url must name an endpoint of ${file.name} (${known.join(", ")}), got '${endpoint}'`,
      );
    }),
  );
  const services = declared.services
    .map((service) => ({
      ...service,
      endpoints: service.endpoints.filter(({ url }) => urls.has(url)),
    }))
    .filter((service) => service.endpoints.length > 0);
  const deployed = { ...declared, services };
  const apiKey = process.env[apiKeyVariable]?.trim() || undefined;
  requireKeys(deployed, apiKey, apiKeyVariable);
  return {
    ...file,
    deployed,
    atAddresses: true,
    state: { ids: new Map(), names: new Map() },
    apiKey,
    inspect: async () => ({ ok: true, containers: new Map() }),
    runInContainer: async () => undefined,
    inspectObjects: async () => ({ ok: false, message: "not inspected" }),
    openAccess: async () => ({
      url: (url) => urls.get(url) ?? url,
      notes: [
        `reached at ${[...urls.values()].join(", ")}; containers and services without an address were not inspected`,
      ],
      close: async () => {},
    }),
  };
}
