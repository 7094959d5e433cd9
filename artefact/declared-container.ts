import { z } from "zod";

/** Block of Terraform JSON, which provider bindings write as an object or a list. */
const blocks = <T extends z.ZodType>(schema: T) =>
  z
    .union([z.array(schema), schema.transform((value) => [value])])
    .optional()
    .transform((value) => (value ?? []) as z.infer<T>[]);

const text = z.string();
const texts = z.array(text).default([]);
const number = z.coerce.number();
const count = number.int().min(0);
const port = number.int().min(1).max(65_535);

/** Arguments of `docker_container` used by the local simulation and by the comparison with `docker inspect`. */
export const declaredContainer = z.object({
  name: text.min(1),
  image: text.optional(),
  user: text.optional(),
  env: z.array(text.regex(/^[^=]+=/s, "must be NAME=value")).default([]),
  entrypoint: texts,
  command: texts,
  capabilities: blocks(z.object({ add: texts, drop: texts })),
  read_only: z.boolean().default(false),
  security_opts: texts,
  privileged: z.boolean().default(false),
  restart: text.default("no"),
  max_retry_count: number.default(0),
  gpus: text.optional(),
  device_requests: blocks(z.object({ count: number.optional(), device_ids: texts })),
  devices: blocks(z.object({ host_path: text })),
  runtime: text.optional(),
  ports: blocks(
    z.object({
      internal: port,
      external: port.optional(),
      ip: text.default("0.0.0.0"),
      protocol: text.default("tcp"),
    }),
  ),
  healthcheck: blocks(
    z.object({
      test: z.array(text).min(1),
      interval: text.optional(),
      timeout: text.optional(),
      start_period: text.optional(),
      retries: count.optional(),
    }),
  ),
  memory: number.default(0),
  cpus: number.default(0),
  shm_size: number.optional(),
  tmpfs: z.record(text, text).default({}),
  ulimit: blocks(z.object({ name: text, soft: number, hard: number })),
  init: z.boolean().optional(),
  network_mode: text.optional(),
  networks_advanced: blocks(z.object({ name: text, aliases: texts }).loose()),
  pid_mode: text.optional(),
  ipc_mode: text.optional(),
  volumes: blocks(
    z.object({
      container_path: text,
      host_path: text.optional(),
      volume_name: text.optional(),
      read_only: z.boolean().default(false),
    }),
  ),
  mounts: blocks(
    z.object({
      target: text,
      source: text.optional(),
      type: z.enum(["bind", "volume", "tmpfs"]),
      read_only: z.boolean().default(false),
    }),
  ),
  upload: blocks(z.object({ file: text, content: text.optional(), source: text.optional() })),
  log_driver: text.optional(),
  log_opts: z.record(text, text).default({}),
  labels: blocks(z.object({ label: text, value: text })),
  stop_timeout: count.optional(),
  destroy_grace_seconds: count.optional(),
  must_run: z.boolean().default(true),
});
export type DeclaredContainer = z.infer<typeof declaredContainer>;
