import { at, block, isExpression, isSet, text } from "../facts/values.ts";
import { environmentBefore, environmentOf } from "../facts/workloads.ts";
import { withoutUser } from "../input/secrets.ts";
import { blocksOf, isObject, sameValue } from "../input/value-paths.ts";
import { type ReviewRule, rule } from "./rule.ts";

/** Kind and settings of the backend; the kind is empty without a backend. */
function backendOf(terraform: unknown) {
  const [[kind, settings] = ["", {}]] = Object.entries(block(at(terraform, "backend")) ?? {});
  return { kind, settings: block(settings) ?? {} };
}

/** State backends and providers. */
export const stateRules: readonly ReviewRule[] = [
  rule({
    id: "state-locking",
    severity: "warning",
    fix: "set useLockfile for s3, or lockAddress and unlockAddress for http, in the settings (state)",
    *find({ configuration }) {
      const { kind, settings } = backendOf(configuration?.terraform);
      if (kind === "s3" && settings.use_lockfile !== true && !isSet(settings.dynamodb_table)) {
        yield { message: "use_lockfile of the backend s3 should be true, got no lock" };
      }
      if (kind === "http" && !isSet(settings.lock_address)) {
        yield { message: "lock_address of the backend http should be set, got nothing" };
      }
    },
  }),
  rule({
    id: "state-shared",
    severity: "note",
    fix: "set state.backend to s3, gcs or http when more than one person or a pipeline deploys",
    *find({ configuration }) {
      if (backendOf(configuration?.terraform).kind === "local") {
        yield { message: "the state is a local file on the deploying machine (backend local)" };
      }
    },
  }),
  rule({
    id: "state-encrypted",
    severity: "warning",
    fix: "set encrypt to true",
    *find({ configuration }) {
      const { kind, settings } = backendOf(configuration?.terraform);
      if (kind === "s3" && settings.encrypt !== true) {
        yield {
          message: `encrypt of the backend s3 should be true, got ${String(settings.encrypt ?? "nothing")}`,
        };
      }
    },
  }),
  rule({
    id: "state-credentials",
    severity: "error",
    fix: "remove them, and set environment variables (AWS_ACCESS_KEY_ID, TF_HTTP_PASSWORD, …)",
    *find({ configuration }) {
      const { kind, settings } = backendOf(configuration?.terraform);
      for (const [name, value] of Object.entries(settings)) {
        if (!credentials.has(name) || !isSet(value) || value === "") continue;
        yield { message: `${name} of the backend ${kind} must not be in the stack` };
      }
      const addresses = ["address", "lock_address", "unlock_address"].map((name) => settings[name]);
      if (addresses.some((address) => /:\/\/[^/@]*@/.test(text(address) ?? ""))) {
        yield { message: `the address of the backend ${kind} must not contain a user or password` };
      }
    },
  }),
  rule({
    id: "provider-pinned",
    severity: "warning",
    fix: "set a version such as '~> 4.5'",
    *find({ configuration, lockedProviders = [] }) {
      const providers = at(configuration?.terraform, "required_providers");
      for (const [name, provider] of Object.entries(isObject(providers) ? providers : {})) {
        // part of Terraform itself
        if (name === "terraform") continue;
        const version = isObject(provider) ? provider.version : provider;
        const bounded =
          typeof version === "string" &&
          (isExpression(version) || /^\s*=?\s*\d|~>|<|(^|,)\s*=?\s*\d/.test(version));
        const source = text(at(provider, "source")) ?? `hashicorp/${name}`;
        if (bounded || lockedProviders.includes(source)) continue;
        yield {
          message: `version of the provider ${name} must have an upper bound, got ${isSet(version) ? `'${String(version)}'` : "nothing"}`,
        };
      }
    },
  }),
  rule({
    id: "state-moved",
    severity: "error",
    fix: "migrate the state (terraform init -migrate-state) in a separate step, and waive this rule for it",
    *find({ configuration, configurationBefore }) {
      if (configurationBefore === undefined) return;
      const before = backendOf(configurationBefore.terraform);
      const after = backendOf(configuration?.terraform);
      const [oldKind, kind] = [before.kind || "local", after.kind || "local"];
      if (oldKind !== kind) {
        yield {
          message: `the state backend changes from ${oldKind} to ${kind}: everything is created again unless the state is migrated`,
        };
        return;
      }
      const names = changedNames(before.settings, after.settings).filter((name) =>
        stateLocations.has(name),
      );
      if (names.length === 0) return;
      yield {
        message: `${names.join(", ")} of the backend ${kind} changes: everything is created again unless the state is migrated`,
      };
    },
  }),
  rule({
    id: "host-moved",
    severity: "error",
    fix: "destroy the environment at the old address first, or waive this rule if both addresses are the same host",
    *find(change) {
      const { configuration, configurationBefore } = change;
      const [from, to] = [environmentBefore(change)?.where, environmentOf(change)?.where];
      if (from !== undefined && to !== undefined && from !== to) {
        yield {
          message: `the environment moves from ${withoutUser(from)} to ${withoutUser(to)}: everything is created again there, and the old deployment becomes unmanaged`,
        };
        return;
      }
      if (configurationBefore === undefined) return;
      const before = providersOf(configurationBefore.provider);
      for (const [name, settings] of providersOf(configuration?.provider)) {
        const old = before.get(name);
        if (old === undefined) continue;
        const locations = changedNames(old, settings).filter((it) => providerLocations.has(it));
        if (locations.length === 0) continue;
        yield {
          message: `${locations.join(", ")} of the provider ${name} changes: everything is created again there, and the old deployment becomes unmanaged`,
        };
      }
    },
  }),
  rule({
    id: "provider-changed",
    severity: "warning",
    fix: "read the provider's changelog, plan against the real state before merging, and check the source",
    *find({ configuration, configurationBefore }) {
      if (configurationBefore === undefined) return;
      const both = [configurationBefore, configuration] as const;
      const [oldProviders, providers] = both.map((it) => requiredProviders(it?.terraform));
      for (const [name, provider] of providers ?? []) {
        const old = oldProviders?.get(name);
        if (old === undefined) {
          yield { message: `the provider ${name} is new, from ${provider.source}` };
          continue;
        }
        for (const field of ["source", "version"] as const) {
          if (old[field] === provider[field]) continue;
          yield {
            message: `the provider ${name} changes from ${field} ${old[field]} to ${provider[field]}`,
          };
        }
      }
      const [required, requires] = both.map((it) => text(at(it?.terraform, "required_version")));
      if (required !== requires) {
        yield {
          message: `the required Terraform version changes from ${required ?? "any"} to ${requires ?? "any"}`,
        };
      }
      const [before, after] = both.map((it) => providersOf(it?.provider));
      for (const [name, settings] of after ?? []) {
        const old = before?.get(name);
        // a new provider is already reported
        if (old === undefined && !oldProviders?.has(name)) continue;
        const names = changedNames(old, settings).filter((it) => !providerLocations.has(it));
        if (names.length > 0) {
          yield {
            message: `${names.join(", ")} of the provider ${name} ${names.length === 1 ? "changes" : "change"}`,
          };
        }
      }
    },
  }),
];

function requiredProviders(terraform: unknown) {
  const all = at(terraform, "required_providers");
  return new Map(
    Object.entries(isObject(all) ? all : {}).map(([name, value]) => {
      const { source, version } = isObject(value) ? value : { source: undefined, version: value };
      return [
        name,
        { source: text(source) ?? `hashicorp/${name}`, version: text(version) ?? "any" },
      ] as const;
    }),
  );
}

type Settings = Readonly<Record<string, unknown>>;

/** Names of settings that differ. */
function changedNames(before: Settings = {}, after: Settings = {}): readonly string[] {
  const names = [...new Set([...Object.keys(before), ...Object.keys(after)])].sort();
  return names.filter((name) => !sameValue(before[name], after[name]));
}

function providersOf(provider: unknown): ReadonlyMap<string, Settings> {
  return new Map(
    Object.entries(isObject(provider) ? provider : {}).flatMap(([name, value]) =>
      blocksOf(value).map((it) => [isSet(it.alias) ? `${name}.${it.alias}` : name, it] as const),
    ),
  );
}

/** Backend settings that locate the state. */
const stateLocations: ReadonlySet<string> = new Set(
  "path bucket key prefix region endpoint endpoints workspace_key_prefix address hostname organization workspaces container_name storage_account_name resource_group_name".split(
    " ",
  ),
);

/** Provider settings that locate the host, cluster or account. */
const providerLocations: ReadonlySet<string> = new Set(
  "host context config_path config_paths config_context config_context_cluster kubernetes exec region endpoint endpoints address url project zone account_id subscription_id tenant_id".split(
    " ",
  ),
);

/** Secret backend settings. */
const credentials: ReadonlySet<string> = new Set([
  "access_key",
  "secret_key",
  "token",
  "sse_customer_key",
  "credentials",
  "access_token",
  "encryption_key",
  "username",
  "password",
  "client_private_key_pem",
]);
