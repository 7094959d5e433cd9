/** One container with all services of an environment, for `docker run` or a GPU marketplace. */
export interface LaunchSpec {
  /** Incremented when a field changes meaning. */
  readonly schema: 1;
  readonly environment: string;
  readonly image: string;
  /** Command that builds the image, run in the project's folder. */
  readonly build: readonly string[];
  readonly services: readonly string[];
  readonly env: Readonly<Record<string, string>>;
  /** Variables with secret values, which `docker run` passes on from its shell. */
  readonly secrets: readonly string[];
  readonly ports: readonly LaunchPort[];
  /** Absent on CPU. */
  readonly gpu?: {
    /** Value of the option `--gpus`. */
    readonly request: string;
    readonly name: string;
    readonly vramMiB: number;
  };
  readonly volumes: readonly LaunchVolume[];
  /** Further options of `docker run`: a flag, or a name and a value. */
  readonly options: readonly (readonly string[])[];
  /** Differences from the environment, and steps that remain. */
  readonly notes: readonly string[];
}

export interface LaunchPort {
  readonly service: string;
  readonly protocol: string;
  readonly container: number;
  readonly host: number;
  /** Address on which the port is published. `127.0.0.1`: only the host and tunnels reach it. `0.0.0.0`: all interfaces. */
  readonly address: string;
}

export interface LaunchVolume {
  /** Name of a volume, or a folder of the host. */
  readonly source: string;
  readonly target: string;
  readonly readOnly: boolean;
}

/** Model configuration that differs from the one in the image. */
export interface ChangedConfig {
  readonly model: string;
  readonly text: string;
}
