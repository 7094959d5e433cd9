import { z } from "zod";

const changeSchema = z.object({
  actions: z.array(z.string()),
  before: z.unknown().optional(),
  after: z.unknown().optional(),
  after_unknown: z.unknown().optional(),
  before_sensitive: z.unknown().optional(),
  after_sensitive: z.unknown().optional(),
  replace_paths: z.array(z.array(z.union([z.string(), z.number()]))).nullish(),
  importing: z.unknown().optional(),
});

const resourceSchema = z.object({
  address: z.string(),
  previous_address: z.string().nullish(),
  mode: z.enum(["managed", "data", "ephemeral"]).default("managed"),
  type: z.string(),
  name: z.string(),
  provider_name: z.string().nullish(),
  action_reason: z.string().nullish(),
  deposed: z.string().nullish(),
  change: changeSchema,
});

const actionInvocationSchema = z.object({
  address: z.string(),
  config_values: z.unknown().optional(),
  config_sensitive: z.unknown().optional(),
  config_unknown: z.unknown().optional(),
  lifecycle_action_trigger: z
    .object({
      triggering_resource_address: z.string().nullish(),
      action_trigger_event: z.string().nullish(),
    })
    .loose()
    .nullish(),
  invoke_action_trigger: z.unknown().optional(),
});

export type ActionInvocation = z.infer<typeof actionInvocationSchema>;

/** Output of `terraform show -json PLAN`: https://developer.hashicorp.com/terraform/internals/json-format, version 1.x. */
export const planSchema = z.object({
  terraform_version: z.string().nullish(),
  errored: z.boolean().nullish(),
  complete: z.boolean().nullish(),
  resource_changes: z.array(resourceSchema).nullish(),
  resource_drift: z.array(resourceSchema).nullish(),
  deferred_changes: z.array(z.object({ resource_change: resourceSchema }).loose()).nullish(),
  action_invocations: z.array(actionInvocationSchema).nullish(),
  deferred_action_invocations: z
    .array(z.object({ action_invocation: actionInvocationSchema }).loose())
    .nullish(),
  checks: z
    .array(
      z.object({
        status: z.string().nullish(),
        address: z.object({ to_display: z.string().nullish() }).loose().nullish(),
      }),
    )
    .nullish(),
  output_changes: z.record(z.string(), changeSchema).nullish(),
  variables: z.record(z.string(), z.object({ value: z.unknown().optional() })).nullish(),
  configuration: z
    .object({
      provider_config: z
        .record(
          z.string(),
          z
            .object({
              name: z.string().nullish(),
              full_name: z.string().nullish(),
              alias: z.string().nullish(),
              version_constraint: z.string().nullish(),
              expressions: z.unknown().optional(),
            })
            .loose(),
        )
        .nullish(),
      root_module: z
        .object({
          variables: z.record(z.string(), z.object({}).loose()).nullish(),
          resources: z
            .array(z.object({ address: z.string(), expressions: z.unknown().optional() }).loose())
            .nullish(),
        })
        .loose()
        .nullish(),
    })
    .loose()
    .nullish(),
});

export type Plan = z.infer<typeof planSchema>;
export type PlannedResource = z.infer<typeof resourceSchema>;
