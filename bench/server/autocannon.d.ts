/** What the load generator uses of autocannon 9, which has no types of its own. */
declare module "autocannon" {
  import type { EventEmitter } from "node:events";

  interface Request {
    readonly method?: string;
    readonly path?: string;
    readonly headers?: Readonly<Record<string, string>>;
    readonly body?: string | Buffer;
  }
  interface Client extends EventEmitter {
    setRequests(requests: readonly Request[]): void;
  }
  interface Options {
    readonly url: string;
    readonly connections: number;
    /** Seconds. */
    readonly duration: number;
    /** Milliseconds between two looks at whether to stop. */
    readonly sampleInt: number;
    /** Seconds that an answer may take. */
    readonly timeout: number;
    readonly setupClient?: (client: Client) => void;
  }
  interface Result {
    readonly errors: number;
    readonly timeouts: number;
  }
  interface Instance extends EventEmitter, Promise<Result> {
    stop(): void;
  }
  export default function autocannon(options: Options): Instance;
}
