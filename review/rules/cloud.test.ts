import { expect, test } from "vitest";
import { plannedChange } from "../test-plans.ts";
import { findingsOfChange } from "./findings.ts";

const found = (...resources: Parameters<typeof plannedChange>[0]) =>
  findingsOfChange(plannedChange(resources), { waivers: [], today: "2026-12-01" }).flatMap(
    ({ rule, message, existing }) => (existing ? [] : [`${rule}: ${message}`]),
  );
const creates = (type: string, after: object) =>
  found({ address: `${type}.a`, actions: ["create"], after });
const updates = (type: string, before: object, after: object) =>
  found({ address: `${type}.a`, actions: ["update"], before, after });

const tcp = { protocol: "tcp" };
const inbound = { access: "Allow", direction: "Inbound" };
const allows = (statement: object) =>
  JSON.stringify({ Version: "2012-10-17", Statement: [{ Effect: "Allow", ...statement }] });

test.each<readonly [string, object, readonly string[]]>([
  [
    "aws_security_group_rule",
    { ...tcp, type: "ingress", from_port: 8000, to_port: 8100, ipv6_cidr_blocks: ["::/0"] },
    ["open-to-all: 8000-8100/tcp must not be open to ::/0"],
  ],
  [
    "aws_security_group_rule",
    { ...tcp, type: "egress", from_port: 22, to_port: 22, cidr_blocks: ["0.0.0.0/0"] },
    [],
  ],
  [
    "kubernetes_cluster_role_binding_v1",
    { role_ref: [{ name: "cluster-admin" }], subject: [{ name: "system:unauthenticated" }] },
    ["permission-wildcard: subject.name must not be system:unauthenticated"],
  ],
  [
    "kubernetes_cluster_role_binding",
    { role_ref: [{ name: "view" }], subject: [{ name: "system:authenticated" }] },
    [],
  ],
  [
    "kubernetes_role_v1",
    { rule: [{ verbs: ["*"], resources: ["*"] }] },
    ["permission-wildcard: rule.verbs must not be *"],
  ],
  ["kubernetes_cluster_role", { rule: [{ verbs: ["*"], resources: ["pods"] }] }, []],
  [
    "aws_vpc_security_group_ingress_rule",
    { ip_protocol: "-1", from_port: null, cidr_ipv4: "0.0.0.0/0" },
    ["open-to-all: every port must not be open to 0.0.0.0/0"],
  ],
  [
    "aws_security_group",
    {
      ingress: [
        { ...tcp, from_port: 443, to_port: 443, cidr_blocks: ["0.0.0.0/0"] },
        { protocol: "icmp", from_port: 8, to_port: 0, cidr_blocks: ["0.0.0.0/0"] },
        { ...tcp, from_port: 22, to_port: 22, cidr_blocks: ["10.0.0.0/8"], ipv6_cidr_blocks: [] },
      ],
    },
    ["public-endpoint: is reachable from the internet: 443/tcp from 0.0.0.0/0"],
  ],
  [
    "google_compute_firewall",
    { allow: [{ ...tcp, ports: ["22", "443"] }], source_ranges: ["128.0.0.0/1"] },
    [
      "open-to-all: 22/tcp must not be open to 128.0.0.0/1",
      "public-endpoint: is reachable from the internet: 443/tcp from 128.0.0.0/1",
    ],
  ],
  [
    "google_compute_network_firewall_policy_rule",
    {
      ...{ action: "allow", direction: "INGRESS" },
      match: [{ src_ip_ranges: ["0.0.0.0/0"], layer4_configs: [{ ip_protocol: "tcp" }] }],
    },
    ["open-to-all: every tcp port must not be open to 0.0.0.0/0"],
  ],
  [
    "azurerm_network_security_group",
    {
      security_rule: [
        {
          ...{ ...inbound, protocol: "Tcp", source_port_range: "*", source_address_prefix: "*" },
          ...{ destination_port_range: "", destination_port_ranges: ["22", "3389"] },
        },
        { ...inbound, protocol: "*", source_address_prefix: "VirtualNetwork" },
      ],
    },
    ["open-to-all: 22/tcp, 3389/tcp must not be open to *"],
  ],
  [
    "aws_s3_bucket_public_access_block",
    { block_public_acls: false, block_public_policy: true, ignore_public_acls: false },
    ["open-to-all: block_public_acls, ignore_public_acls must not be false"],
  ],
  [
    "google_sql_database_instance",
    {
      settings: [{ ip_configuration: [{ authorized_networks: [{ value: "0.0.0.0/0" }] }] }],
    },
    ["open-to-all: settings.ip_configuration.authorized_networks.value must not be 0.0.0.0/0"],
  ],
  ["aws_lb", { internal: true }, []],
  [
    "aws_lb",
    { name: "web" },
    ["public-endpoint: is reachable from the internet: internal is not set"],
  ],
  [
    "aws_eks_cluster",
    { vpc_config: [{ endpoint_public_access: false, public_access_cidrs: ["0.0.0.0/0"] }] },
    [],
  ],
  [
    "google_compute_instance",
    { network_interface: [{ access_config: [{}] }] },
    ["public-endpoint: is reachable from the internet: network_interface.access_config is set"],
  ],
  [
    "aws_sqs_queue",
    { policy: allows({ Principal: { AWS: ["*"] }, Action: "sqs:*" }) },
    ["permission-wildcard: policy must not allow every principal sqs:*"],
  ],
  [
    "aws_sns_topic",
    { policy: allows({ Principal: "*", Action: "sns:Publish", Condition: { Bool: {} } }) },
    [],
  ],
  [
    "aws_iam_role",
    { inline_policy: [{ policy: allows({ NotAction: "iam:*", Resource: ["*"] }) }] },
    [
      "permission-wildcard: inline_policy.policy must not allow all actions but a few on every resource",
    ],
  ],
  ["aws_iam_policy", { policy: allows({ Action: "s3:*", Resource: "*" }) }, []],
  ["aws_iam_policy", { policy: '{"Statement": oops' }, []],
  [
    "google_storage_bucket_iam_binding",
    { members: ["user:a@example.com", "allUsers"], role: "roles/storage.objectViewer" },
    ["permission-wildcard: members must not be allUsers"],
  ],
  [
    "google_pubsub_topic_iam_policy",
    { policy_data: '{"bindings":[{"members":["allUsers"],"role":"roles/pubsub.editor"}]}' },
    ["permission-wildcard: policy_data must not grant roles/pubsub.editor to everyone"],
  ],
  [
    "azurerm_role_assignment",
    { role_definition_name: "Owner" },
    ["permission-wildcard: role_definition_name must not be Owner"],
  ],
])("%s %j", (type, after, expected) => {
  expect(creates(type, after)).toEqual(expected);
});

test("what was open before is no new finding", () => {
  const open = { ...tcp, from_port: 22, to_port: 22, cidr_blocks: ["0.0.0.0/0"] };
  expect(
    updates("aws_security_group", { ingress: [open] }, { ingress: [open], name: "b" }),
  ).toEqual([]);
});

test.each<readonly [object, object, readonly string[]]>([
  [
    { skip_final_snapshot: false, backup_retention_period: 7 },
    { skip_final_snapshot: true, backup_retention_period: 0 },
    [
      "backup_retention_period changes from 7 to 0",
      "skip_final_snapshot changes from false to true",
    ],
  ],
  [
    { settings: [{ deletion_protection_enabled: true }] },
    { settings: [] },
    ["settings.deletion_protection_enabled changes from true to nothing"],
  ],
  [{ backup_retention_period: 7 }, { backup_retention_period: 3 }, []],
  [{ storage_encrypted: false }, { storage_encrypted: true }, []],
  // blocks in another order, one block less, and one that loses it
  [
    { disk: [{ encrypted: true }, { encrypted: false }] },
    { disk: [{ encrypted: false }, { encrypted: true }] },
    [],
  ],
  [{ disk: [{ encrypted: true }, { encrypted: true }] }, { disk: [{ encrypted: true }] }, []],
  [
    { disk: [{ encrypted: true }, { encrypted: true }] },
    { disk: [{ encrypted: true }, { encrypted: false }] },
    ["disk.encrypted changes from true to false"],
  ],
  [{ disk: [{ encrypted: true }] }, { disk: [] }, ["disk.encrypted changes from true to nothing"]],
])("protection-off: from %j to %j", (before, after, expected) => {
  expect(updates("exoscale_dbaas", before, after)).toEqual(
    expected.map((it) => `protection-off: ${it}`),
  );
});

const destroyed = (type: string, before: object) =>
  found(
    { address: `${type}.a`, actions: ["delete"], before },
    { address: "aws_vpc.kept", actions: ["no-op"], before: {}, after: {} },
  );

test("a destroyed public access block is reported", () => {
  expect(destroyed("aws_s3_bucket_public_access_block", { bucket: "a" })).toEqual([
    "protection-off: the aws_s3_bucket_public_access_block is destroyed",
  ]);
});

test.each([
  ["aws_lightsail_disk", {}, true],
  ["aws_redshiftserverless_namespace", {}, true],
  ["vultr_database", {}, true],
  ["scaleway_rdb", { backup_retention_days: 7 }, true],
  ["aws_route_table", {}, false],
  ["aws_db_subnet_group", {}, false],
  ["aws_s3_bucket_policy", {}, false],
  ["github_actions_secret", {}, false],
])("data-lost: %s %j: %s", (type, before, isLost) => {
  const expected = [`data-lost: the ${type} a is destroyed, with its data`];
  expect(destroyed(type, before)).toEqual(isLost ? expected : []);
});
