import { X509Certificate } from "node:crypto";
import { embedMetrics } from "../../contract/metrics/embed-metrics.ts";
import { UserError } from "../../contract/user-error.ts";
import { selfSignedCertificate } from "../../http/self-signed-certificate.ts";
import { type HostDrill, type HostRun, hostPhases } from "./host-run.ts";

/** Suffix of the valid files during the drill. */
const valid = ".clipstack-drill";
/** Time in which the server uses replaced files, in seconds. */
const reloadSeconds = 30;

/** Replaces the certificate of the server that receives the load with an expired one. Clients of the drill do not verify certificates. */
export const certificateDrill: HostDrill = {
  name: "certificate",
  question: "Does the server serve with an expired certificate, and does a metric show it?",
  help: `Replaces the files of embed.tls on the host with an expired certificate and its key for --seconds. Clients that verify certificates fail
in this time; those of the drill do not verify them.`,
  async prepare(run) {
    if (filesOf(run) === undefined) {
      throw new UserError(`${run.target.entry.name} must have tls, got no certificate`);
    }
    run.verifiesCertificate = false;
    // the valid files of a drill that was killed
    await restoreFiles(run);
    run.changed = false;
  },
  phases: hostPhases("expired", async (run) => {
    const { cert, key } = selfSignedCertificate({ days: [-2, -1] });
    const expired = Date.parse(new X509Certificate(cert).validTo) / 1_000;
    await run.helper(
      [...mountsOf(run), "--env", `CERT=${cert}`, "--env", `KEY=${key}`],
      `for file in "$1" "$2"; do cp -p "$file" "$file${valid}" || exit 1; done
printf %s "$CERT" > "$1" && printf %s "$KEY" > "$2"`,
      filesOf(run),
    );
    run.step("the certificate is replaced with an expired one");
    await run.until(
      "the metric shows the expired certificate",
      reloadSeconds,
      async () => (await expiryOf(run)) === expired,
    );
    run.check("the metric shows the expired certificate", true, embedMetrics.certificateExpiry);
    await run.watch(run.options.seconds);
    await restoreFiles(run);
    await run.until(
      "the server uses the former certificate again",
      reloadSeconds,
      async () => (await expiryOf(run)) !== expired,
    );
    run.check("the former certificate is used again, without a restart", true, "as before");
  }),
  restore: restoreFiles,
};

/** Paths of the certificate and of its key in the container. */
function filesOf(run: HostRun): readonly string[] | undefined {
  const { Env } = run.containerOf(run.target.entry).Config;
  const files = ["TLS_CERT_FILE", "TLS_KEY_FILE"].flatMap((name) => {
    const line = Env.find((it) => it.startsWith(`${name}=`));
    return line === undefined ? [] : [line.slice(name.length + 1)];
  });
  return files.length === 2 ? files : undefined;
}

/** Mounts of the folders of the files at the same paths, writable. */
function mountsOf(run: HostRun): readonly string[] {
  const files = filesOf(run) ?? [];
  return run
    .containerOf(run.target.entry)
    .Mounts.filter(({ Destination }) => files.some((file) => file.startsWith(`${Destination}/`)))
    .flatMap(({ Source, Destination }) => ["--volume", `${Source}:${Destination}`]);
}

async function restoreFiles(run: HostRun): Promise<void> {
  const restored = await run.helper(
    mountsOf(run),
    `for file in "$1" "$2"; do
  if [ -e "$file${valid}" ]; then cat "$file${valid}" > "$file" && rm "$file${valid}" && echo "$file"; fi
done`,
    filesOf(run),
  );
  if (restored !== "") run.step("the former certificate is in its place");
}

/** End of the validity of the certificate in use, in seconds since 1970. */
async function expiryOf(run: HostRun): Promise<number> {
  const [line] = await run.metric(embedMetrics.certificateExpiry);
  return line?.value ?? 0;
}
