import { findingIf } from "../checks/findings.ts";
import type { ChartValues } from "./chart-values.ts";

const inClearText = "because requests would be sent in clear text";

/** Rejects chart values by which other hosts reach a server without TLS. `allowPlaintext` of the component or route permits them. */
export function plaintextValueFindings(values: ChartValues): readonly string[] {
  const { embed, triton, ingress } = values;
  const isOpen = (part: typeof embed | typeof triton) =>
    part?.service?.type === "NodePort" || part?.service?.type === "LoadBalancer";
  return [
    ...findingIf(
      isOpen(embed) &&
        embed?.enabled !== false &&
        !embed?.tls?.secretName &&
        embed?.allowPlaintext !== true,
      "embed.tls.secretName",
      `name a Secret if embed.service.type is not ClusterIP, ${inClearText}`,
      "nothing",
    ),
    ...findingIf(
      isOpen(triton) && triton?.enabled === true && triton.allowPlaintext !== true,
      "triton.service.type",
      `be ClusterIP, ${inClearText}`,
      "another type",
    ),
    ...findingIf(
      ingress?.enabled === true && !ingress.tlsSecretName && ingress.allowPlaintext !== true,
      "ingress.tlsSecretName",
      `name a Secret, ${inClearText}`,
      "nothing",
    ),
    ...(["httpRoute", "grpcRoute"] as const).flatMap((name) => {
      const { enabled, allowPlaintext, parentRefs = [] } = values[name] ?? {};
      return findingIf(
        enabled === true &&
          allowPlaintext !== true &&
          parentRefs.some(({ sectionName }) => !sectionName),
        `${name}.parentRefs`,
        `each have the sectionName of a listener with TLS, ${inClearText}`,
        "a Gateway without one",
      );
    }),
  ];
}
