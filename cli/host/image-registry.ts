import { z } from "zod";
import { runProgram } from "../shared/run-program.ts";

const platform = z.object({ os: z.string(), architecture: z.string() });

/** `docker buildx imagetools inspect --format '{{json .}}'` */
const inspected = z.object({
  manifest: z.object({
    digest: z.string(),
    manifests: z.array(z.object({ platform: platform.optional() })).optional(),
  }),
  /** The platform of an image that has only one; otherwise a map of platforms. */
  image: z.unknown(),
});

/** Time limit of a registry, which may be far away. */
const registryMs = 60_000;

/**
 * Resolves the digest of a tag in its registry, with the credentials of `docker login`.
 *
 * @param required - Platform that the image must have: `linux/amd64`.
 * @returns The digest, or why there is none: one line.
 */
export async function resolveDigest(
  image: string,
  required: string,
): Promise<{ readonly digest: string } | { readonly problem: string }> {
  const args = ["buildx", "imagetools", "inspect", image, "--format", "{{json .}}"];
  const result = await runProgram("docker", args, { timeoutMs: registryMs });
  if (
    result.outcome === "missing" ||
    /unknown command|is not a docker command/.test(result.stderr)
  ) {
    return { problem: "docker buildx must be installed on this machine to read a registry" };
  }
  if (result.exitCode !== 0) return { problem: `${image}: ${registryProblem(result)}` };
  const { manifest, image: config } = inspected.parse(JSON.parse(result.stdout));
  const single = platform.safeParse(config).data;
  const found = manifest.manifests?.map((entry) => entry.platform) ?? [single];
  const names = found.flatMap((it) =>
    it === undefined || it.os === "unknown" ? [] : [`${it.os}/${it.architecture}`],
  );
  if (!names.includes(required)) {
    return { problem: `${image}: must have the platform ${required}, has ${names.join(", ")}` };
  }
  return { digest: manifest.digest };
}

function registryProblem({ outcome, stderr }: Awaited<ReturnType<typeof runProgram>>): string {
  if (outcome === "late") return `the registry must respond in ${registryMs / 1_000} s`;
  const reason = stderr
    .trim()
    .split("\n")
    .at(-1)!
    .replace(/^ERROR: (failed to do request: \w+ "[^"]*": )?/, "");
  if (/: not found$/.test(reason)) return "the registry has no such image or tag";
  if (/unauthorized|authentication|authorize|denied|no basic auth/i.test(reason)) {
    return "the registry requires other credentials: docker login";
  }
  return `the registry cannot be read: ${reason}`;
}
