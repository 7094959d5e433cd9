import { at, blocks, isSet, text } from "../facts/values.ts";
import { managedResources } from "../facts/workloads.ts";
import type { ResourceChange, StackChange, Values } from "../input/change.ts";
import { hidden } from "../input/secrets.ts";
import { few } from "../input/stack-facts.ts";
import { isObject, isWithin, leavesOf, textsIn, toList } from "../input/value-paths.ts";
import { removed } from "./changes.ts";
import { each, type ReviewRule, type RuleMatch, rule } from "./rule.ts";

/** Values that a rule reports: resource types, attributes separated by spaces, and values of these attributes. */
type ValueRow = readonly [
  types: RegExp,
  attributes: string,
  values: RegExp,
  applies?: (resource: Values) => boolean,
];

/** Networks with a large part of all addresses. */
const anywhere = /^(\*|any|internet|[\d.]+\/[0-7]|(2000)?::\/\d)$/i;
const everyone = /^all(Authenticated)?Users$/;

const publicData: readonly ValueRow[] = [
  [/^aws_/, "publicly_accessible", /^true$/],
  [/^aws_s3_bucket(_acl)?$/, "acl", /^(public|authenticated)-/],
  [
    /^aws_s3_(account|bucket)_public_access_block$/,
    "block_public_acls block_public_policy ignore_public_acls restrict_public_buckets",
    /^false$/,
  ],
  [/^google_storage_.*acl$/, "predefined_acl", /^(public|authenticated)Read/i],
  [/^google_sql_/, "settings.ip_configuration.authorized_networks.value", anywhere],
  [/^azurerm_storage_account$/, "allow_nested_items_to_be_public", /^true$/],
  [/^azurerm_storage_container$/, "container_access_type", /^(blob|container)$/],
  [/^azurerm_.*firewall_rule$/, "end_ip_address end_ip", /^255\.255\.255\.255$/],
];

const publicEndpoints: readonly ValueRow[] = [
  [/^aws_(a|e)?lb$/, "internal", /^(false|undefined)$/],
  [/^aws_/, "associate_public_ip_address", /^true$/],
  [/^aws_/, "network_interfaces.associate_public_ip_address", /^true$/],
  [/^aws_ecs_service$/, "network_configuration.assign_public_ip", /^true$/],
  [/^aws_lambda_function_url$/, "authorization_type", /^NONE$/],
  [
    /^aws_eks_cluster$/,
    "vpc_config.public_access_cidrs",
    anywhere,
    ({ vpc_config }) => at(vpc_config, "endpoint_public_access") !== false,
  ],
  [/^google_compute_(global_)?forwarding_rule$/, "load_balancing_scheme", /^EXTERNAL/],
  [/^google_compute_(region_)?instance/, "network_interface.access_config", /object/],
  [/^google_sql_/, "settings.ip_configuration.ipv4_enabled", /^true$/],
  [/^azurerm_public_ip$/, "allocation_method", /./],
];

const wideGrants: readonly ValueRow[] = [
  [
    /^aws_/,
    "policy_arn managed_policy_arn managed_policy_arns policy_arns",
    /:policy\/(AdministratorAccess|IAMFullAccess)$/,
  ],
  [/^google_.+_iam_(binding|member)$/, "member members", everyone],
  [
    /^google_(folder|organization|project)_iam_(binding|member)$/,
    "role",
    /^roles\/(owner|editor|iam\.(securityAdmin|serviceAccountTokenCreator))$/,
  ],
  [/^google_storage_.*access_control$/, "entity", everyone],
  [/^google_bigquery_dataset/, "special_group access.special_group", everyone],
  [
    /^azurerm_role_assignment$/,
    "role_definition_name",
    /^(Owner|User Access Administrator|Role Based Access Control Administrator)$/,
  ],
  [/^azurerm_role_definition$/, "permissions.actions", /^\*$/],
  [
    /^kubernetes_(cluster_)?role_binding(_v1)?$/,
    "subject.name",
    /^system:((un)?authenticated|anonymous)$/,
    ({ role_ref }) => /^(cluster-admin|admin|edit)$/.test(text(at(role_ref, "name")) ?? ""),
  ],
  [
    /^kubernetes_(cluster_)?role(_v1)?$/,
    "rule.verbs",
    /^\*$/,
    ({ rule: all }) =>
      blocks(all).some(({ verbs, resources }) =>
        [verbs, resources].every((it) => toList(it).includes("*")),
      ),
  ],
];

/** Ingress rules of a firewall, with the providers' names of their fields. */
const ingressRules: Readonly<Record<string, (values: Values) => readonly Values[]>> = {
  aws_security_group: ({ ingress }) => blocks(ingress),
  aws_default_security_group: ({ ingress }) => blocks(ingress),
  aws_security_group_rule: (values) => (values.type === "ingress" ? [values] : []),
  aws_vpc_security_group_ingress_rule: (values) => [values],
  google_compute_firewall: ({ allow, source_ranges, direction, disabled }) =>
    direction === "EGRESS" || disabled === true
      ? []
      : blocks(allow).map((it) => ({ ...it, source_ranges })),
  google_compute_firewall_policy_rule: ofPolicyRule,
  google_compute_network_firewall_policy_rule: ofPolicyRule,
  azurerm_network_security_rule: (values) => allowedInbound(values),
  azurerm_network_security_group: ({ security_rule }) =>
    blocks(security_rule).flatMap(allowedInbound),
};

function ofPolicyRule({ action, direction, disabled, match }: Values): readonly Values[] {
  if (action !== "allow" || direction !== "INGRESS" || disabled === true) return [];
  return toList(at(match, "layer4_configs"))
    .filter(isObject)
    .map((it) => ({ ...it, source_ranges: at(match, "src_ip_ranges") }));
}

function allowedInbound(values: Values): readonly Values[] {
  return values.access === "Allow" && values.direction === "Inbound" ? [values] : [];
}

/** Ports of an ingress rule, such as `22/tcp`; all without a limit, none of ICMP. */
function portsOf(ingress: Values): readonly string[] {
  const protocol = (text(ingress.protocol ?? ingress.ip_protocol) ?? "all").toLowerCase();
  const name = { "6": "tcp", "17": "udp", "*": "all", "-1": "all" }[protocol] ?? protocol;
  if (/^(icmp.*|1|58)$/.test(name)) return [];
  const { from_port: from, to_port: to } = ingress;
  const range = from === to ? text(from) : `${text(from) ?? ""}-${text(to) ?? ""}`;
  const listed = [ingress.ports, ingress.destination_port_range, ingress.destination_port_ranges]
    .flatMap(toList)
    .map(String)
    .filter((it) => it !== "");
  const ranges = listed.length > 0 ? listed : isSet(from) && protocol !== "-1" ? [range ?? ""] : [];
  if (ranges.length === 0 || ranges.some((it) => /^(\*|[01]-65535)$/.test(it))) {
    return [name === "all" ? "every port" : `every ${name} port`];
  }
  return ranges.map((it) => (name === "all" ? it : `${it}/${name}`));
}

/** Ports that a firewall opens to any address: those of the web, or the others. */
function* openPorts({ type, after }: ResourceChange, isWeb: boolean) {
  const rules = Object.hasOwn(ingressRules, type) ? ingressRules[type] : undefined;
  for (const ingress of rules?.(after ?? {}) ?? []) {
    const sources = Object.entries(ingress)
      .filter(([name]) =>
        /^((ipv6_)?cidr_blocks|cidr_ipv[46]|source_(ranges|address_prefix(es)?))$/.test(name),
      )
      .flatMap(([, value]) => toList(value).map(String))
      .filter((it) => anywhere.test(it));
    const ports = portsOf(ingress).filter((it) => /^(80|443)(\/|$)/.test(it) === isWeb);
    if (sources.length > 0 && ports.length > 0)
      yield { ports: few(ports), from: few([...new Set(sources)]) };
  }
}

/** Attributes with a value of a table: `acl`, `public-read`. Several attributes of a row with one value are listed together. */
function* valuesIn(rows: readonly ValueRow[], { type, after = {} }: ResourceChange) {
  for (const [types, attributes, values, applies] of rows) {
    if (!types.test(type) || applies?.(after) === false) continue;
    const found = new Map<string, readonly string[]>();
    for (const attribute of attributes.split(" ")) {
      for (const value of new Set(textsAt(after, attribute.split(".")))) {
        if (values.test(value)) found.set(value, [...(found.get(value) ?? []), attribute]);
      }
    }
    for (const [value, names] of found) yield { attribute: names.join(", "), value };
  }
}

/** Values of an attribute in all blocks at a path as texts; a block is `object`, an absent value `undefined`. */
function textsAt(values: Values, [name = "", ...below]: readonly string[]): readonly string[] {
  if (below.length > 0) return blocks(values[name]).flatMap((it) => textsAt(it, below));
  const all = isSet(values[name]) ? toList(values[name]) : [undefined];
  return all.map((it) => (isObject(it) ? "object" : String(it)));
}

/** Examines managed resources that exist after the change. */
function eachResource(find: (resource: ResourceChange) => Iterable<string>) {
  return each(managedResources, (resource) => [...find(resource)]);
}

function* mustNot(rows: readonly ValueRow[], resource: ResourceChange) {
  for (const { attribute, value } of valuesIn(rows, resource)) {
    yield `${attribute} must not be ${value}`;
  }
}

const words = (values: unknown, format: RegExp) =>
  few(toList(values).map((it) => (format.test(String(it)) ? String(it) : hidden)));

/** Statements of a policy of AWS for every principal, or for everything; roles of Google Cloud for everyone. */
function* policyGrants(resource: ResourceChange): Generator<string> {
  for (const [path, json] of textsIn(resource.after)) {
    if (!/"(Statement|bindings)"/.test(json)) continue;
    const policy = parsed(json);
    const attribute = path.filter((it) => typeof it === "string").join(".");
    for (const { role, members } of blocks(at(policy, "bindings"))) {
      if (!toList(members).some((it) => everyone.test(String(it)))) continue;
      yield `${attribute} must not grant ${words(role, /^[\w/.-]+$/)} to everyone`;
    }
    for (const { Effect, Condition, Principal, ...statement } of blocks(at(policy, "Statement"))) {
      if (Effect !== "Allow") continue;
      const { Action, NotAction, Resource } = statement;
      const actions = isSet(NotAction) ? "all actions but a few" : words(Action, /^[\w*:-]+$/);
      const principals = isObject(Principal) ? Object.values(Principal) : [Principal];
      if (principals.flatMap(toList).includes("*")) {
        if (!isSet(Condition)) yield `${attribute} must not allow every principal ${actions}`;
      } else if (
        (isSet(NotAction) || toList(Action).some((it) => /^(\*(:\*)?|iam:\*)$/.test(String(it)))) &&
        toList(Resource).includes("*")
      ) {
        yield `${attribute} must not allow ${actions} on every resource`;
      }
    }
  }
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** Attributes of any provider that protect objects or data, and the value with which they do. */
const protections: readonly (readonly [attribute: RegExp, protects: RegExp])[] = [
  [/(^|[._])(deletion|delete|termination|purge)_protection(_enabled)?$/, /^true$/],
  [/(^|\.)disable_api_(stop|termination)$/, /^true$/],
  [/encrypt|(^|[._])sse_enabled$|(^|\.)(require_ssl|https_traffic_only_enabled)$/, /^true$/],
  [/(^|\.)(versioning|point_in_time_recovery|backup_configuration)\.enabled$/, /^true$/],
  [/(^|\.)versioning_configuration\.status$/, /^Enabled$/],
  [/(^|[._])(skip_final_snapshot|force_destroy|force_delete)$/, /^false$/],
  [
    /(^|[._])(backup|snapshot)_retention(_\w+)?$|(^|\.)soft_delete_retention_days$/,
    /^(?!(0|false)$)/,
  ],
];

/** Protections that fewer blocks of the resource have than before; the order of blocks does not matter. */
function* lostProtections({ before, after = {}, unknown }: ResourceChange): Generator<string> {
  const seen = new Set<string>();
  for (const [path, value] of leavesOf(before, [], isSet)) {
    const names = path.filter((it) => typeof it === "string");
    const attribute = names.join(".");
    const protects = protections.find(([name]) => name.test(attribute))?.[1];
    if (protects?.test(String(value)) !== true || seen.has(attribute)) continue;
    seen.add(attribute);
    const [was, current] = [before ?? {}, after].map((values) =>
      textsAt(values, names).filter((it) => !protects.test(it)),
    );
    const added = current!.length - was!.length;
    const isGone = textsAt(after, names).length === 0;
    if (added <= 0 && !isGone) continue;
    const now = current!.find((it) => it !== "undefined");
    const isUnknown = unknown.some((it) => isWithin(path, it));
    if (now === undefined && isUnknown) continue;
    yield `${attribute} changes from ${String(value)} to ${now ?? "nothing"}`;
  }
}

/** Resources whose only purpose is to protect another one. */
const guards =
  /^(aws_s3_bucket_(public_access_block|server_side_encryption_configuration|versioning)|aws_ebs_encryption_by_default|azurerm_management_lock|google_resource_manager_lien)$/;

/** Exposure, permissions and protection of cloud resources. Values that are known only after the apply are not examined. */
export const cloudRules: readonly ReviewRule[] = [
  rule({
    id: "open-to-all",
    severity: "error",
    fix: "limit the addresses or the principals, or waive this rule if everyone may reach it",
    find: eachResource(function* (resource) {
      for (const { ports, from } of openPorts(resource, false)) {
        yield `${ports} must not be open to ${from}`;
      }
      yield* mustNot(publicData, resource);
    }),
  }),
  rule({
    id: "public-endpoint",
    severity: "warning",
    fix: "check that it is meant for the internet, and that it authenticates its users",
    find: eachResource(function* (resource) {
      for (const { ports, from } of openPorts(resource, true)) {
        yield `is reachable from the internet: ${ports} from ${from}`;
      }
      for (const { attribute, value } of valuesIn(publicEndpoints, resource)) {
        const state = { object: "set", undefined: "not set" }[value] ?? value;
        yield `is reachable from the internet: ${attribute} is ${state}`;
      }
    }),
  }),
  rule({
    id: "permission-wildcard",
    severity: "error",
    fix: "name the actions, resources, principals or a narrower role",
    find: eachResource(function* (resource) {
      yield* mustNot(wideGrants, resource);
      yield* policyGrants(resource);
    }),
  }),
  rule({
    id: "protection-off",
    severity: "warning",
    fix: "keep the protection, or apply its removal separately from the change that needs it",
    *find(change: StackChange): Iterable<RuleMatch> {
      for (const resource of change.resources) {
        if (resource.mode !== "managed" || resource.after === undefined) continue;
        for (const message of lostProtections(resource))
          yield { address: resource.address, message };
      }
      for (const { address, type, action } of removed(guards)(change)) {
        if (action === "delete") yield { address, message: `the ${type} is destroyed` };
      }
    },
  }),
];
