import type { ExaminedType } from "../input/resource-types.ts";

/** Format of values that the review understands. */
export type Format = "text" | "number" | "flag" | RegExp;

/** Attributes, without list indices and separated by spaces; `*` stands for any map key, `**` for everything below. */
export type Attributes = readonly (readonly [format: Format, names: string])[];

export const metadata: Attributes = [
  ["text", "id metadata.name metadata.namespace metadata.generate_name timeouts.*"],
  ["text", "metadata.resource_version metadata.uid metadata.self_link"],
  [/^[\w.-]{0,63}$/, "metadata.labels.app.kubernetes.io/* metadata.labels.k8s-app"],
  ["number", "metadata.generation"],
];

const probe = (name: string): Attributes => [
  ["number", `${name}.failure_threshold ${name}.period_seconds ${name}.success_threshold`],
  ["number", `${name}.timeout_seconds ${name}.initial_delay_seconds`],
  ["text", `${name}.http_get.path ${name}.http_get.port ${name}.http_get.scheme`],
  ["text", `${name}.exec.command ${name}.grpc.port ${name}.tcp_socket.port`],
];

const container: Attributes = [
  ["text", "name image command args env.name env.value image_pull_policy port.name"],
  ["text", "env.value_from.secret_key_ref.name env.value_from.secret_key_ref.key"],
  ["text", "env.value_from.field_ref.field_path lifecycle.pre_stop.exec.command"],
  ["number", "port.container_port port.host_port security_context.run_as_user"],
  ["number", "security_context.run_as_group resources.limits.* resources.requests.*"],
  [/^(TCP|UDP|SCTP)$/, "port.protocol"],
  ["text", "security_context.capabilities.add security_context.capabilities.drop"],
  ["flag", "security_context.privileged security_context.run_as_non_root"],
  [/^true$/, "security_context.read_only_root_filesystem"],
  [/^false$/, "security_context.allow_privilege_escalation"],
  [/^RuntimeDefault$/, "security_context.seccomp_profile.type"],
  ["text", "volume_mount.mount_path volume_mount.name volume_mount.sub_path"],
  ["flag", "volume_mount.read_only"],
  [/^None$/, "volume_mount.mount_propagation"],
  [/^\/dev\/termination-log$/, "termination_message_path"],
  [/^File$/, "termination_message_policy"],
  ...["liveness_probe", "readiness_probe", "startup_probe"].flatMap(probe),
];

const pod: Attributes = [
  ...below("container", container),
  ...below("init_container", container),
  ["flag", "host_network host_pid host_ipc security_context.run_as_non_root"],
  [/^(true|false)$/, "automount_service_account_token enable_service_links"],
  ["number", "security_context.run_as_user security_context.run_as_group"],
  ["number", "security_context.fs_group termination_grace_period_seconds"],
  ["number", "topology_spread_constraint.max_skew"],
  [/^RuntimeDefault$/, "security_context.seccomp_profile.type"],
  [/^(clipstack|metrics-server)[\w-]*$/, "service_account_name"],
  [/^Always$/, "restart_policy"],
  [/^ClusterFirst$/, "dns_policy"],
  [/^default-scheduler$/, "scheduler_name"],
  [/^(system-cluster-critical)$/, "priority_class_name"],
  ["text", "node_selector.* toleration.key toleration.operator"],
  ["text", "toleration.value toleration.effect image_pull_secrets.name volume.name"],
  ["text", "topology_spread_constraint.label_selector.match_labels.*"],
  ["text", "topology_spread_constraint.topology_key topology_spread_constraint.match_label_keys"],
  ["text", "topology_spread_constraint.when_unsatisfiable volume.host_path.path"],
  ["text", "volume.empty_dir.medium volume.empty_dir.size_limit volume.config_map.name"],
  ["text", "volume.secret.secret_name volume.persistent_volume_claim.claim_name"],
  ["flag", "volume.persistent_volume_claim.read_only"],
];

const template: Attributes = [
  [/^[\w.-]{0,63}$/, "template.metadata.labels.*"],
  ...below("template.spec", pod),
];

const workload: Attributes = [
  ...metadata,
  ...below("spec", template),
  ["number", "spec.replicas spec.min_ready_seconds spec.progress_deadline_seconds"],
  ["number", "spec.revision_history_limit spec.strategy.rolling_update.max_surge"],
  ["number", "spec.strategy.rolling_update.max_unavailable"],
  ["text", "spec.selector.match_labels.*"],
  [/^(RollingUpdate|Recreate|OnDelete)$/, "spec.strategy.type spec.update_strategy.type"],
  [/^(true|false)$/, "wait_for_rollout"],
];

const roles: Attributes = [
  ...metadata,
  [/^true$/, "metadata.labels.rbac.authorization.k8s.io/*"],
  ["text", "rule.api_groups rule.resources rule.resource_names rule.verbs rule.non_resource_urls"],
];

const bindings: Attributes = [
  ...metadata,
  ["text", "role_ref.api_group role_ref.kind"],
  // other roles may be declared elsewhere
  [
    /^(system:(auth-delegator|metrics-server)|extension-apiserver-authentication-reader)$/,
    "role_ref.name",
  ],
  [/^(cluster-admin|admin|edit|view)$/, "role_ref.name"],
  ["text", "subject.api_group subject.kind subject.name subject.namespace"],
];

const job: Attributes = [
  ...template,
  ["number", "backoff_limit completions parallelism active_deadline_seconds"],
  ["number", "ttl_seconds_after_finished"],
  ["flag", "suspend"],
  ["text", "completion_mode selector.match_labels.*"],
];

/** Stored texts, whose meaning depends on the workloads that read them. */
const data: Attributes = [
  ...metadata,
  ["text", "data.* binary_data.* type"],
  ["flag", "immutable wait_for_service_account_token"],
];

/** Programs of provisioners are examined apart. */
const anything: Attributes = [[/^/, "id input.** input output.** output triggers.**"]];

/** Kinds without an entry have only `metadata`: all their other attributes are unknown. */
export const known: Readonly<Partial<Record<ExaminedType, Attributes>>> = {
  terraform_data: [...anything, [/^/, "triggers_replace triggers_replace.**"]],
  null_resource: anything,
  kubernetes_pod: [...metadata, ...below("spec", pod)],
  kubernetes_job: [...metadata, ...below("spec", job), ["flag", "wait_for_completion"]],
  kubernetes_cron_job: [
    ...metadata,
    ...below("spec.job_template.spec", job),
    ["text", "spec.schedule spec.timezone spec.concurrency_policy"],
    ["number", "spec.successful_jobs_history_limit spec.failed_jobs_history_limit"],
    ["number", "spec.starting_deadline_seconds"],
    ["flag", "spec.suspend"],
  ],
  kubernetes_secret: data,
  kubernetes_config_map: data,
  kubernetes_persistent_volume_claim: [
    ...metadata,
    ["text", "spec.access_modes spec.storage_class_name spec.volume_name spec.volume_mode"],
    ["number", "spec.resources.requests.*"],
    ["flag", "wait_until_bound"],
  ],
  docker_container: [
    ["text", "id name image user command entrypoint env hostname working_dir gpus bridge"],
    ["text", "labels.label labels.value log_opts.max-file log_opts.max-size timeouts.*"],
    ["text", "healthcheck.test healthcheck.interval healthcheck.start_interval"],
    ["text", "healthcheck.start_period healthcheck.timeout tmpfs.* networks_advanced.name"],
    ["text", "networks_advanced.aliases ports.ip capabilities.drop"],
    ["text", "volumes.container_path volumes.host_path volumes.volume_name upload.content"],
    ["text", "upload.content_base64 upload.file upload.source upload.source_hash"],
    ["text", "mounts.source mounts.target devices.host_path devices.container_path"],
    ["text", "devices.permissions ulimit.name container_logs dynamic.upload.**"],
    ["number", "memory memory_swap memory_reservation shm_size cpus cpu_shares stop_timeout"],
    ["number", "destroy_grace_seconds wait_timeout healthcheck.retries ulimit.hard ulimit.soft"],
    ["number", "container_read_refresh_timeout_milliseconds max_retry_count exit_code"],
    ["number", "ports.internal ports.external"],
    [/./, "network_data.**"],
    ["flag", "privileged publish_all_ports logs remove_volumes volumes.read_only init wait"],
    ["flag", "mounts.read_only upload.executable"],
    [/^(CAP_)?(CHOWN|NET_BIND_SERVICE)$/, "capabilities.add"],
    [/^true$/, "read_only start"],
    [/^(tcp|udp|sctp)$/, "ports.protocol"],
    [/^(bind|volume|tmpfs)$/, "mounts.type"],
    [/^(no|always|unless-stopped|on-failure)$/, "restart"],
    [/^(json-file|local|journald)$/, "log_driver"],
    [/^(bridge|default|host|none)$/, "network_mode"],
    [/^(private|shareable|host|none)$/, "ipc_mode"],
    [/^host$/, "pid_mode userns_mode"],
    [/^(runc|nvidia)$/, "runtime"],
    [/^linux(\/(amd64|arm64))?$/, "platform"],
    [/^(SIG(TERM|INT|QUIT)|)$/, "stop_signal"],
    [/^(no-new-privileges([:=]true)?|(seccomp|apparmor)[:=]unconfined)$/, "security_opts"],
  ],
  docker_image: [
    ["text", "id image_id repo_digest name timeouts.* triggers.* build.context build.dockerfile"],
    ["text", "build.build_args.* build.target build.platform pull_triggers"],
    ["flag", "keep_locally build.remove build.use_legacy_builder"],
  ],
  docker_network: [
    ["text", "id name ipam_config.gateway ipam_config.subnet labels.label labels.value"],
    [/^(bridge|macvlan|ipvlan)$/, "driver"],
    [/^default$/, "ipam_driver"],
    [/^local$/, "scope"],
    [/^true$/, "internal"],
  ],
  docker_volume: [
    ["text", "id name mountpoint labels.label labels.value driver_opts.device driver_opts.type"],
    [/^local$/, "driver"],
  ],
  helm_release: [
    ["text", "id name namespace description version timeouts.* values metadata.**"],
    ["text", "status"],
    [/(^|\/)clipstack$/, "chart"],
    ["number", "timeout max_history"],
    ["flag", "cleanup_on_fail atomic render_subchart_notes wait wait_for_jobs create_namespace"],
    ["flag", "recreate_pods force_update replace lint"],
  ],
  kubernetes_deployment: workload,
  kubernetes_stateful_set: workload,
  kubernetes_daemonset: workload,
  kubernetes_daemon_set: workload,
  kubernetes_replication_controller: workload,
  kubernetes_service: [
    ...metadata,
    ["text", "spec.selector.* spec.port.name spec.external_ips spec.cluster_ip spec.cluster_ips"],
    ["text", "spec.port.app_protocol spec.ip_families spec.ip_family_policy"],
    ["number", "spec.port.port spec.port.node_port spec.health_check_node_port"],
    [/^[\w-]+$/, "spec.port.target_port"],
    [/^(TCP|UDP|SCTP)$/, "spec.port.protocol"],
    [/^(ClusterIP|NodePort|LoadBalancer)$/, "spec.type"],
    [/^None$/, "spec.session_affinity"],
    [/^Cluster$/, "spec.external_traffic_policy spec.internal_traffic_policy"],
    [/^true$/, "spec.allocate_load_balancer_node_ports"],
    ["flag", "wait_for_load_balancer"],
    ["text", "status.**"],
  ],
  kubernetes_network_policy: [
    ...metadata,
    [/^(Ingress|Egress)$/, "spec.policy_types"],
    ["text", "spec.pod_selector.match_labels.* spec.*.from.pod_selector.match_labels.*"],
    ["text", "spec.*.from.namespace_selector.match_labels.* spec.*.to.pod_selector.match_labels.*"],
    [/^[\w-]+$/, "spec.*.ports.port"],
    [/^(TCP|UDP|SCTP)$/, "spec.*.ports.protocol"],
  ],
  kubernetes_horizontal_pod_autoscaler: [
    ...metadata,
    ["number", "spec.min_replicas spec.max_replicas"],
    [/./, "spec.scale_target_ref.** spec.metric.** spec.behavior.**"],
  ],
  kubernetes_pod_disruption_budget: [
    ...metadata,
    ["number", "spec.min_available spec.max_unavailable"],
    ["text", "spec.selector.match_labels.*"],
  ],
  kubernetes_resource_quota: [...metadata, ["number", "spec.hard.*"]],
  kubernetes_limit_range: [
    ...metadata,
    ["number", "spec.limit.default.* spec.limit.default_request.* spec.limit.max.*"],
    ["number", "spec.limit.min.*"],
    [/^Container$/, "spec.limit.type"],
  ],
  kubernetes_namespace: [
    ...metadata,
    [/^(baseline|restricted)$/, "metadata.labels.pod-security.kubernetes.io/*"],
    ["flag", "wait_for_default_service_account"],
  ],
  kubernetes_service_account: [
    ...metadata,
    ["flag", "automount_service_account_token"],
    ["text", "image_pull_secret.name default_secret_name"],
  ],
  kubernetes_role: roles,
  kubernetes_cluster_role: roles,
  kubernetes_role_binding: bindings,
  kubernetes_cluster_role_binding: bindings,
};

function below(path: string, attributes: Attributes): Attributes {
  return attributes.map(([format, names]) => [
    format,
    names
      .split(" ")
      .map((name) => `${path}.${name}`)
      .join(" "),
  ]);
}
