import type { ResourceChange } from "./change.ts";

/** Last words of types of any provider whose objects hold data, names or keys that an apply cannot recreate. */
const dataNouns =
  /_(db|database|bucket|disk|volume|file_?system|file_?share|keyspace|key_ring|crypto_key|registry|repository|sql_server|table|queue|vault|secret|snapshot|hosted_zone|user_pool|dataset|datastore|key_value_store|kv_namespace)(_v\d+)?$/;

const otherNouns =
  /_(route|catalog)_(table|database)$|_(job|tasks|convert)_queue$|^github_.+_secret$/;

/** Types with other names. */
const dataTypes = new RegExp(
  `^(${[
    "aws_((rds|docdb|neptune|redshift|memorydb|msk|elasticache|dax|dsql)_(global_|serverless_)?cluster|rds_cluster_instance|db_instance|elasticache_(replication_group|serverless_cache)|(opensearch|elasticsearch)_domain|kinesis_stream|kms_key|route53_zone|redshiftserverless_namespace|fsx_.+|timestreamwrite_.+|lightsail_(database|disk|bucket|instance)|backup_vault)",
    "google_(sql_database_instance|bigtable_instance|spanner_instance|filestore_instance|alloydb_(cluster|instance)|(redis|memcache)_(instance|cluster)|dns_managed_zone|pubsub_subscription)",
    "azurerm_((mssql|mysql|postgresql|mariadb).*_server|mssql_(managed_instance|elasticpool)|cosmosdb_.+|storage_(account|container|share|data_lake_gen2_filesystem)|key_vault_(key|certificate)|.*redis_(cache|enterprise_cluster|cluster)|container_registry|dns_zone|kusto_cluster)",
    "digitalocean_database_(cluster|db)|mongodbatlas_(advanced_)?cluster|kafka_topic|confluent_kafka_(topic|cluster)|elasticstack_elasticsearch_index|github_repository",
  ].join("|")})$`,
);

/** Attributes that only resources with data have. */
const dataAttributes =
  /^((skip_)?final_snapshot(_\w+)?|(auto(matic|mated)?_)?(backup|snapshot)_(retention|window)(_\w+)?|recovery_window_in_days|point_in_time_recovery)$/;

/** Returns whether destroying a resource loses data; those of Docker and Kubernetes have rules of their own. */
export function holdsData({ type, before = {} }: ResourceChange): boolean {
  if (/^(docker|kubernetes)_/.test(type) || otherNouns.test(type)) return false;
  return (
    dataNouns.test(type) ||
    dataTypes.test(type) ||
    Object.entries(before).some(
      ([name, value]) => dataAttributes.test(name) && value !== null && value !== undefined,
    )
  );
}
