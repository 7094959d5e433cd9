/**
 * Mutations that do not matter or that rules accept, by type: the attribute and the kinds of its mutations, `a` absent, `o` other value,
 * `t` other type, `u` unknown. Values that a provider computes may be unknown; everything else must not end as "safe".
 */
export const harmless: Readonly<Record<string, string>> = {
  docker_container: `a: capabilities.add labels log_driver log_opts network_mode networks_advanced.gw_priority upload volumes
    ao: container_read_refresh_timeout_milliseconds cpu_shares labels.label labels.value log_opts.max-file log_opts.max-size logs max_retry_count memory memory_reservation memory_swap remove_volumes timeouts timeouts.create tmpfs tmpfs./tmp upload.content upload.file upload.source upload.source_hash volumes.container_path volumes.volume_name wait_timeout working_dir
    aot: must_run
    aotu: command container_logs entrypoint network_data.global_ipv6_prefix_length network_data.ip_prefix_length network_data.network_name
    aou: bridge exit_code healthcheck.interval healthcheck.retries healthcheck.start_interval healthcheck.start_period healthcheck.timeout hostname id init network_data shm_size stop_timeout
    au: env ipc_mode platform runtime
    o: capabilities.drop cpus destroy_grace_seconds networks_advanced.name ports.external ports.internal start upload.content_base64 upload.executable user volumes.host_path volumes.read_only wait
    ot: gpus networks_advanced.aliases read_only timeouts.delete timeouts.update
    otu: healthcheck.test network_data.gateway network_data.global_ipv6_address network_data.ip_address network_data.ipv6_gateway network_data.mac_address
    ou: name
    t: attach
    u: healthcheck image labels log_driver stop_signal`,
  docker_image: `ao: timeouts timeouts.create
    aou: id image_id
    o: triggers
    ot: pull_triggers timeouts.delete timeouts.update
    ou: repo_digest`,
  docker_network: `a: ipam_driver
    aou: id ipam_config.gateway ipam_config.subnet
    au: driver ipam_config scope
    o: name
    ou: internal
    u: ipam_config.aux_address ipam_config.ip_range labels options`,
  docker_volume: `o: name
    ou: id mountpoint
    u: driver labels`,
  helm_release: `ao: cleanup_on_fail max_history render_subchart_notes status timeout timeouts timeouts.create timeouts.delete timeouts.update version
    o: atomic create_namespace description force_update lint name namespace recreate_pods replace wait wait_for_jobs
    ot: timeouts.read`,
  kubernetes_api_service: `aotu: metadata metadata.labels metadata.labels.* spec.group_priority_minimum spec.insecure_skip_tls_verify spec.service.port spec.version_priority
    o: spec spec.service
    otu: metadata.annotations metadata.generate_name metadata.name spec.ca_bundle`,
  kubernetes_cluster_role: `o: metadata.labels.* rule.resources
    ot: metadata.generate_name rule.api_groups rule.non_resource_urls rule.resource_names
    ou: metadata.name`,
  kubernetes_cluster_role_binding: `o: metadata.labels.* role_ref.api_group role_ref.kind subject.kind subject.name subject.namespace
    ot: metadata.generate_name
    ou: metadata.name`,
  kubernetes_config_map: `a: metadata.labels
    ao: data data.models.json metadata.namespace
    aot: metadata.labels.*
    aou: id metadata.generation metadata.resource_version metadata.uid
    o: binary_data immutable metadata.generate_name
    ou: metadata.name`,
  kubernetes_deployment: `a: metadata.labels spec.template.metadata.annotations spec.template.metadata.annotations.checksum/models spec.strategy.rolling_update.max_surge spec.strategy.type spec.template.metadata spec.template.spec.active_deadline_seconds spec.template.spec.container.lifecycle.pre_stop.exec spec.template.spec.container.port.host_port spec.template.spec.container.port.protocol spec.template.spec.container.startup_probe.http_get spec.template.spec.container.termination_message_path spec.template.spec.container.volume_mount.mount_propagation spec.template.spec.dns_policy spec.template.spec.restart_policy spec.template.spec.service_account_name spec.template.spec.topology_spread_constraint.min_domains spec.template.spec.volume.empty_dir
    ao: spec.min_ready_seconds spec.progress_deadline_seconds spec.revision_history_limit spec.template.metadata.labels spec.template.spec.container.env.value spec.template.spec.container.image_pull_policy spec.template.spec.container.liveness_probe.initial_delay_seconds spec.template.spec.container.port.container_port spec.template.spec.container.readiness_probe.initial_delay_seconds spec.template.spec.container.startup_probe.http_get.path spec.template.spec.container.startup_probe.http_get.port spec.template.spec.container.startup_probe.http_get.scheme spec.template.spec.container.startup_probe.initial_delay_seconds spec.template.spec.container.startup_probe.success_threshold spec.template.spec.container.startup_probe.timeout_seconds spec.template.spec.container.volume_mount.mount_path spec.template.spec.topology_spread_constraint.max_skew spec.template.spec.topology_spread_constraint.topology_key spec.template.spec.topology_spread_constraint.when_unsatisfiable spec.template.spec.volume.empty_dir.medium spec.template.spec.volume.empty_dir.size_limit
    aot: metadata.labels.* spec.template.metadata.labels.* spec.template.spec.container.lifecycle.pre_stop.exec.command spec.template.spec.topology_spread_constraint.match_label_keys
    aou: id metadata.generation metadata.resource_version metadata.uid
    at: spec.template.spec.container.resources.requests.cpu
    au: spec.replicas spec.template.metadata.generation spec.template.spec.container.termination_message_policy spec.template.spec.scheduler_name
    o: metadata.generate_name metadata.namespace spec.selector.match_labels spec.selector.match_labels.* spec.template.spec.automount_service_account_token spec.template.spec.container.liveness_probe.failure_threshold spec.template.spec.container.liveness_probe.http_get.path spec.template.spec.container.liveness_probe.http_get.port spec.template.spec.container.liveness_probe.http_get.scheme spec.template.spec.container.liveness_probe.period_seconds spec.template.spec.container.liveness_probe.success_threshold spec.template.spec.container.liveness_probe.timeout_seconds spec.template.spec.container.name spec.template.spec.container.port.name spec.template.spec.container.readiness_probe.failure_threshold spec.template.spec.container.readiness_probe.http_get.path spec.template.spec.container.readiness_probe.http_get.port spec.template.spec.container.readiness_probe.http_get.scheme spec.template.spec.container.readiness_probe.period_seconds spec.template.spec.container.readiness_probe.success_threshold spec.template.spec.container.readiness_probe.timeout_seconds spec.template.spec.container.security_context.read_only_root_filesystem spec.template.spec.container.startup_probe.failure_threshold spec.template.spec.container.startup_probe.period_seconds spec.template.spec.container.volume_mount.name spec.template.spec.container.volume_mount.read_only spec.template.spec.container.volume_mount.sub_path spec.template.spec.enable_service_links spec.template.spec.node_selector spec.template.spec.security_context.run_as_non_root spec.template.spec.termination_grace_period_seconds spec.template.spec.topology_spread_constraint.label_selector.match_labels spec.template.spec.topology_spread_constraint.label_selector.match_labels.* spec.template.spec.volume.name timeouts wait_for_rollout
    ot: spec.template.spec.container.args spec.template.spec.container.command spec.template.spec.container.security_context.capabilities.drop
    ou: metadata.name
    t: spec.template.spec.container.resources.requests.memory spec.template.spec.container.security_context.capabilities.add
    tu: spec.template.spec.container.resources.limits.cpu spec.template.spec.container.resources.limits.memory
    u: spec.template.metadata.name spec.template.metadata.resource_version spec.template.metadata.uid spec.template.spec.container.resources.limits spec.template.spec.hostname spec.template.spec.image_pull_secrets spec.template.spec.node_name spec.template.spec.readiness_gate`,
  kubernetes_horizontal_pod_autoscaler: `a: metadata.labels
    ao: metadata.namespace spec.behavior
    aot: metadata.labels.* spec.behavior.scale_down spec.behavior.scale_down.policy spec.behavior.scale_down.policy.period_seconds spec.behavior.scale_down.policy.type spec.behavior.scale_down.policy.value spec.behavior.scale_down.select_policy spec.behavior.scale_down.stabilization_window_seconds
    aotu: spec.behavior.scale_up spec.behavior.scale_up.policy spec.behavior.scale_up.policy.period_seconds spec.behavior.scale_up.policy.type spec.behavior.scale_up.policy.value spec.behavior.scale_up.select_policy spec.behavior.scale_up.stabilization_window_seconds
    aou: id metadata.generation metadata.resource_version metadata.uid
    au: spec.target_cpu_utilization_percentage
    o: metadata.generate_name spec.max_replicas spec.metric spec.min_replicas spec.scale_target_ref
    ot: spec.metric.container_resource spec.metric.external spec.metric.object spec.metric.pods spec.metric.resource spec.metric.resource.name spec.metric.resource.target spec.metric.resource.target.average_utilization spec.metric.resource.target.average_value spec.metric.resource.target.type spec.metric.resource.target.value spec.metric.type spec.scale_target_ref.api_version spec.scale_target_ref.kind spec.scale_target_ref.name
    ou: metadata.name`,
  kubernetes_limit_range: `a: metadata.labels
    aot: metadata.labels.*
    aou: id metadata.generation metadata.resource_version metadata.uid
    o: metadata.generate_name metadata.namespace
    ou: metadata.name
    t: spec.limit.default.cpu spec.limit.default.memory spec.limit.default_request.cpu spec.limit.default_request.memory spec.limit.max.cpu spec.limit.max.memory`,
  kubernetes_namespace: `aou: id metadata.generation metadata.resource_version metadata.uid
    o: metadata.generate_name timeouts wait_for_default_service_account
    ou: metadata.name`,
  kubernetes_network_policy: `o: metadata.generate_name metadata.namespace spec.ingress.ports.port spec.pod_selector.match_labels spec.pod_selector.match_labels.*
    ot: metadata.labels.*
    ou: id metadata.generation metadata.name metadata.resource_version metadata.uid`,
  kubernetes_pod_disruption_budget: `a: metadata.labels
    ao: metadata.namespace
    aot: metadata.labels.*
    aou: id metadata.generation metadata.resource_version metadata.uid
    o: metadata.generate_name spec.selector.match_labels spec.selector.match_labels.*
    ou: metadata.name`,
  kubernetes_resource_quota: `a: metadata.labels
    aot: metadata.labels.*
    aou: id metadata.generation metadata.resource_version metadata.uid
    o: metadata.generate_name metadata.namespace timeouts
    ou: metadata.name
    t: spec.hard.limits.cpu spec.hard.limits.memory spec.hard.pods spec.hard.requests.cpu spec.hard.requests.memory`,
  kubernetes_role_binding: `o: metadata.labels.* metadata.namespace role_ref.api_group role_ref.kind subject.kind subject.name subject.namespace
    ot: metadata.generate_name
    ou: metadata.name`,
  kubernetes_service: `a: metadata.labels spec.session_affinity
    ao: spec.allocate_load_balancer_node_ports wait_for_load_balancer
    aot: metadata.labels.*
    aotu: spec.ip_families status.load_balancer
    aou: id metadata.generation metadata.resource_version metadata.uid spec.ip_family_policy status
    au: spec.external_traffic_policy spec.internal_traffic_policy
    o: metadata.generate_name metadata.namespace spec.port.app_protocol spec.port.name spec.port.port spec.port.target_port spec.selector spec.selector.* timeouts
    ot: spec.external_ips
    otu: spec.cluster_ips status.load_balancer.ingress
    ou: metadata.name spec.cluster_ip spec.health_check_node_port spec.port.node_port
    u: spec.port.target_port spec.session_affinity_config`,
  kubernetes_service_account: `o: automount_service_account_token metadata.generate_name metadata.namespace timeouts
    ot: metadata.labels.*
    ou: default_secret_name id metadata.generation metadata.name metadata.resource_version metadata.uid`,
  terraform_data: `aotu: id triggers_replace triggers_replace.container
    otu: input output`,
};
