import { z } from "zod";

/** Docker writes `null` for an empty list or map. */
const orEmpty = <T extends z.ZodType>(schema: T) =>
  z
    .nullish(z.array(schema))
    .transform((value): readonly z.infer<T>[] => (value ?? []) as z.infer<T>[]);
const mapOf = <T extends z.ZodType>(schema: T) =>
  z
    .nullish(z.record(z.string(), schema))
    .transform(
      (value): Readonly<Record<string, z.infer<T>>> => (value ?? {}) as Record<string, z.infer<T>>,
    );

const binding = z.object({ HostIp: z.string().default(""), HostPort: z.string() });

/** Fields of `docker inspect` that are compared with the declared container. */
export const inspectedContainer = z.object({
  Id: z.string(),
  /** Docker prepends a slash. */
  Name: z.string().transform((name) => name.replace(/^\//, "")),
  Image: z.string(),
  RestartCount: z.number().default(0),
  State: z.object({
    /** `created`, `running`, `paused`, `restarting`, `removing`, `exited` or `dead`. */
    Status: z.string(),
    ExitCode: z.number(),
    /** In the process namespace of the engine; 0 unless running. */
    Pid: z.number().default(0),
    OOMKilled: z.boolean().default(false),
    Error: z.string().default(""),
    StartedAt: z.string(),
    Health: z
      .object({
        Status: z.string(),
        FailingStreak: z.number().default(0),
        Log: orEmpty(z.object({ ExitCode: z.number(), Output: z.string().default("") })),
      })
      .nullish(),
  }),
  Config: z.object({
    User: z.string().default(""),
    Env: orEmpty(z.string()),
    Cmd: orEmpty(z.string()),
    Entrypoint: orEmpty(z.string()),
    Labels: mapOf(z.string()),
    StopTimeout: z.number().nullish(),
    Healthcheck: z
      .object({
        Test: orEmpty(z.string()),
        /** Nanoseconds, as are the other durations. */
        Interval: z.number().default(0),
        Timeout: z.number().default(0),
        StartPeriod: z.number().default(0),
        Retries: z.number().default(0),
      })
      .nullish(),
  }),
  HostConfig: z.object({
    CapAdd: orEmpty(z.string()),
    CapDrop: orEmpty(z.string()),
    ReadonlyRootfs: z.boolean().default(false),
    SecurityOpt: orEmpty(z.string()),
    RestartPolicy: z.object({ Name: z.string(), MaximumRetryCount: z.number().default(0) }),
    Privileged: z.boolean().default(false),
    DeviceRequests: orEmpty(
      z.object({
        Count: z.number().default(0),
        DeviceIDs: orEmpty(z.string()),
        Capabilities: orEmpty(z.array(z.string())),
      }),
    ),
    Devices: orEmpty(z.object({ PathOnHost: z.string() })),
    Runtime: z.string().default(""),
    PortBindings: mapOf(orEmpty(binding)),
    PublishAllPorts: z.boolean().default(false),
    /** Bytes; 0 means no limit. */
    Memory: z.number().default(0),
    /** Bytes of memory and swap; -1 means no limit. */
    MemorySwap: z.number().default(0),
    NanoCpus: z.number().default(0),
    ShmSize: z.number().default(0),
    Tmpfs: mapOf(z.string()),
    Ulimits: orEmpty(z.object({ Name: z.string(), Soft: z.number(), Hard: z.number() })),
    Init: z.boolean().nullish(),
    NetworkMode: z.string().default(""),
    PidMode: z.string().default(""),
    IpcMode: z.string().default(""),
    LogConfig: z.object({ Type: z.string(), Config: mapOf(z.string()) }),
  }),
  Mounts: orEmpty(
    z.object({
      Type: z.string(),
      Name: z.string().optional(),
      Source: z.string().default(""),
      Destination: z.string(),
      RW: z.boolean(),
    }),
  ),
  NetworkSettings: z.object({
    /** Ports published now; empty unless the container is running. */
    Ports: mapOf(orEmpty(binding)),
    Networks: mapOf(
      z.object({
        Aliases: orEmpty(z.string()),
        /** Requested address. */
        IPAMConfig: z.object({ IPv4Address: z.string().optional() }).nullish(),
      }),
    ),
  }),
});
export type InspectedContainer = z.infer<typeof inspectedContainer>;

/** Containers and images in Terraform's state, by address. */
export interface DeployedState {
  readonly ids: ReadonlyMap<string, string>;
  /** Container names; the declared name may be an expression. */
  readonly names: ReadonlyMap<string, string>;
}

/** Containers of a Docker engine by name, or the reason why the engine is unavailable. */
export type Inspection =
  | { readonly ok: true; readonly containers: ReadonlyMap<string, InspectedContainer> }
  | { readonly ok: false; readonly message: string };
