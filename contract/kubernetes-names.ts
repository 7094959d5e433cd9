/** Names and labels that Kubernetes accepts. The patterns are also part of the chart's schema, which has no lookahead. */

const dnsLabel = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?";
const labelName = "[A-Za-z0-9]([-\\w.]{0,61}[A-Za-z0-9])?";

/** Name of an object: DNS labels, separated by dots. */
export const objectNamePattern = new RegExp(`^${dnsLabel}(\\.${dnsLabel})*$`);
/** Key of a label, a taint or an annotation: `team`, `nvidia.com/gpu.present`. */
export const labelKeyPattern = new RegExp(`^(${dnsLabel}(\\.${dnsLabel})*/)?${labelName}$`);
/** Value of a label or a taint, which can be empty. */
export const labelValuePattern = new RegExp(`^(${labelName})?$`);
/** Key of an entry of a Secret. */
export const secretKeyPattern = /^[-\w.]{1,253}$/;
