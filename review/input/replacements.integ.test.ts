import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { command } from "../../tests/deploy/test-docker.ts";
import { providerEnvironment } from "../../tests/deploy/test-providers.ts";
import type { Path } from "./change.ts";
import table from "./resource-types.json" with { type: "json" };
import { forcingPaths } from "./resource-types.ts";

/** Compares `resource-types.json` with the replacements that the installed provider plans, for one change of each attribute. */

interface Block {
  readonly attributes?: Readonly<
    Record<string, { type?: unknown; required?: boolean; optional?: boolean }>
  >;
  readonly block_types?: Readonly<Record<string, { block: Block; min_items?: number }>>;
}
type Values = Readonly<Record<string, unknown>>;

/** Values for attributes that the provider validates. */
const valid: Values = {
  ...{ restart: "always", ipc_mode: "host", network_mode: "host", pid_mode: "host" },
  ...{ userns_mode: "host", cgroupns_mode: "host", cpu_set: "0", stop_timeout: 9, runtime: "runc" },
  ...{ shm_size: 65, memory: 512, memory_swap: 512, cpus: "0.5", env: ["A=b"] },
  ...{ data: "eA==", test: ["CMD", "true"], source_image: "x:1", target_image: "x:2" },
  ...{ device: "/dev/null", ip: "127.0.0.1", subnet: "10.9.0.0/24", mode: "host" },
};

function changed(name: string, type: unknown, old: unknown): unknown {
  if (name === "type" && old === undefined) return "bind";
  if (Object.hasOwn(valid, name) && JSON.stringify(old) !== JSON.stringify(valid[name]))
    return valid[name];
  if (type === "bool") return old !== true;
  if (type === "number") return Number(old ?? 0) + 1;
  if (type === "string" || type === "dynamic") return old === "changed" ? "other" : "changed";
  const [kind, inner] = type as readonly [string, unknown];
  return kind === "map" ? { key: "changed" } : [changed(name, inner, undefined)];
}

/** Required values of a block. */
function required({ attributes = {}, block_types = {} }: Block): Values {
  return Object.fromEntries([
    ...Object.entries(attributes).flatMap(([name, { type, required: isRequired }]) =>
      isRequired ? [[name, changed(name, type, undefined)]] : [],
    ),
    ...Object.entries(block_types).flatMap(([name, { block, min_items }]) =>
      min_items ? [[name, [required(block)]]] : [],
    ),
  ]);
}

const source = "kreuzwerker/docker";
const types = Object.keys({ ...table.types, ...table.unexamined }).filter((it) =>
  /^(docker_(?!secret|config)|terraform_data$)/.test(it),
);
const folder = await mkdtemp(join(tmpdir(), "clipstack-replacements-"));
const env = await providerEnvironment(folder);
const run = (...args: readonly string[]) =>
  command("terraform", [`-chdir=${folder}`, ...args], { env: { ...process.env, ...env } });
const write = (file: string, content: unknown) =>
  writeFile(join(folder, file), JSON.stringify(content));
const configuration = (resource: unknown) =>
  write("main.tf.json", { terraform: { required_providers: { docker: { source } } }, resource });

await configuration({ terraform_data: { a: {} } });
const found = (await run("init", "-input=false")).code === 0;

describe.skipIf(!found)(`replacements${found ? "" : ` (skipped: no provider ${source})`}`, () => {
  afterAll(() => rm(folder, { recursive: true, force: true }));
  let schemas: Readonly<Record<string, { readonly version: number; readonly block: Block }>>;
  let planned: ReadonlyMap<string, readonly Path[]>;

  async function plan(): Promise<
    readonly { address: string; change: { after: Values; replace_paths?: Path[] } }[]
  > {
    const { code, output } = await run("plan", "-refresh=false", "-input=false", "-out=plan");
    expect(code, output).toBe(0);
    return JSON.parse((await run("show", "-json", "plan")).stdout).resource_changes;
  }

  beforeAll(async () => {
    const all = JSON.parse((await run("providers", "schema", "-json")).stdout).provider_schemas;
    schemas = Object.assign(
      {},
      ...Object.values<{ resource_schemas: object }>(all).map((it) => it.resource_schemas),
    );
    const base = new Map(types.map((type) => [type, required(schemas[type]!.block)]));
    await configuration(
      Object.fromEntries([...base].map(([type, values]) => [type, { base: values }])),
    );
    const created = new Map((await plan()).map(({ address, change }) => [address, change.after]));
    const resources = types.map((type) => {
      const { block } = schemas[type]!;
      const [values = {}, state = {}] = [base.get(type), created.get(`${type}.base`)];
      const changes = [
        ...Object.entries(block.attributes ?? {}).flatMap(([name, { type, required, optional }]) =>
          (required || optional) && name !== "id"
            ? [[name, changed(name, type, state[name] ?? values[name])] as const]
            : [],
        ),
        ...Object.entries(block.block_types ?? {}).flatMap(([name, it]) =>
          name === "timeouts" ? [] : [[name, [required(it.block)]] as const],
        ),
      ];
      return { type, state, values, changes };
    });
    await write("terraform.tfstate", {
      ...{ version: 4, terraform_version: "1.0.0", serial: 1, lineage: "a", outputs: {} },
      resources: resources.flatMap(({ type, state, changes }) =>
        changes.map(([name]) => ({
          ...{ mode: "managed", type, name },
          provider: `provider["${type === "terraform_data" ? "terraform.io/builtin/terraform" : `registry.terraform.io/${source}`}"]`,
          instances: [
            { schema_version: schemas[type]!.version, attributes: { id: "x", ...state } },
          ],
        })),
      ),
    });
    await configuration(
      Object.fromEntries(
        resources.map(({ type, values, changes }) => [
          type,
          Object.fromEntries(changes.map(([name, value]) => [name, { ...values, [name]: value }])),
        ]),
      ),
    );
    planned = new Map(
      (await plan()).map(({ address, change }) => [address, change.replace_paths ?? []]),
    );
  }, 240_000);

  test("the table is of the installed version", async () => {
    const { provider_selections: versions } = JSON.parse((await run("version", "-json")).stdout);
    expect(table.providers).toMatchObject({
      [source]: versions[`registry.terraform.io/${source}`],
    });
  });

  test.each(types)("%s", (type) => {
    const own = [...planned].filter(([address]) => address.startsWith(`${type}.`));
    const names = own.map(([address]) => address.slice(type.length + 1));
    const installed = own.flatMap(([, paths], index) =>
      paths.some(([attribute]) => attribute === names[index]) ? [names[index]] : [],
    );
    const listed = names.filter((name) => forcingPaths(type, [[name]]).length > 0);
    expect(listed, "attributes that replace: listed, and in the installed provider").toEqual(
      installed,
    );
  });
});
