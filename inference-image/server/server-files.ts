import type { Server as TlsServer } from "node:tls";
import type { FastifyInstance } from "fastify";
import { defaultClient } from "../../contract/server/client-keys.ts";
import type { ServerEnv } from "../../contract/server/server-env.ts";
import { ClientKeys } from "../embed/client-keys.ts";
import type { EmbedMetrics } from "../models/metrics.ts";
import { expiryOf, minTlsVersion, readClientKeys, readTlsFiles, type TlsFiles } from "./tls.ts";
import { WatchedFiles } from "./watched-files.ts";

/** Certificate and keys of a server, which are replaced without a restart. */
export interface ServerFiles {
  /** Certificate at the start. */
  readonly tls: TlsFiles | undefined;
  readonly keys: ClientKeys | undefined;
  /** Applies changed files to the server, until it closes. */
  watch(app: FastifyInstance, metrics: EmbedMetrics): void;
  reload(): Promise<void>;
}

export async function openServerFiles(settings: ServerEnv): Promise<ServerFiles> {
  const { API_KEY, API_KEYS_FILE: keysPath, TLS_CERT_FILE: cert, TLS_KEY_FILE: key } = settings;
  const certificate =
    cert === undefined || key === undefined
      ? undefined
      : await WatchedFiles.open({
          purpose: "certificate",
          paths: [cert, key],
          read: async () => (await readTlsFiles(settings))!,
        });
  const keyFile =
    keysPath === undefined
      ? undefined
      : await WatchedFiles.open({
          purpose: "keys",
          paths: [keysPath],
          read: () => readClientKeys(keysPath),
        });
  const single = API_KEY === undefined ? undefined : [{ name: defaultClient, key: API_KEY }];
  const listed = keyFile?.content ?? single;
  const keys = listed && new ClientKeys(listed);
  return {
    tls: certificate?.content,
    keys,
    watch(app, metrics) {
      app.addHook("onClose", async () => {
        certificate?.close();
        keyFile?.close();
      });
      const common = { onState: metrics.fileState, log: app.log };
      keyFile?.watch({ ...common, apply: (content) => keys?.replace(content) });
      if (certificate === undefined) return;
      const reportExpiry = (content: TlsFiles) => {
        const expiry = expiryOf(content);
        metrics.certificateExpires(expiry);
        if (expiry < new Date()) {
          app.log.warn(`the certificate of TLS_CERT_FILE expired at ${expiry.toISOString()}`);
        }
      };
      reportExpiry(certificate.content);
      certificate.watch({
        ...common,
        apply(content) {
          const server = app.server as unknown as TlsServer;
          server.setSecureContext({ ...content, minVersion: minTlsVersion });
          reportExpiry(content);
        },
      });
    },
    async reload() {
      await Promise.all([certificate?.reload(), keyFile?.reload()]);
    },
  };
}
