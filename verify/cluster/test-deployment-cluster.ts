import { isDeepStrictEqual } from "node:util";
import { kubectlAutoscaler, kubectlDeployment, kubectlPod } from "../test-kubectl.ts";
import { type ApiAnswer, type ApiRequest, testCluster } from "./test-cluster-server.ts";

/**
 * For tests: a cluster with one Deployment of two pods and its maximum number of earlier revisions. A pod with a missing image
 * never becomes ready.
 */

/** Time until the controllers observe a patch, so that requests are due within each phase of a drill. */
const observedAfterMs = 1_000;

/** Simulated faults of the cluster. */
export interface DeploymentFaults {
  /** Outage of the API server after the patch to the missing image, in milliseconds; `comeBack` ends it. */
  readonly awayMs?: number;
  readonly patchFails?: boolean;
  /** Time after the first request during which the autoscaler holds four pods, in milliseconds. */
  readonly scaledUpMs?: number;
}

// biome-ignore lint/suspicious/noExplicitAny: objects of Kubernetes
type Any = any;

const revision = "deployment.kubernetes.io/revision";

export async function deploymentCluster(faults: DeploymentFaults = {}) {
  const { uid, name } = kubectlDeployment.metadata;
  const { template } = kubectlDeployment.spec;
  let made = 0;
  let awayUntil = 0;
  let observedAt = 0;
  let patched = false;
  let scaleDownAt: number | undefined;
  const id = () => `made-${++made}`;
  const deployment: Any = structuredClone(kubectlDeployment);
  deployment.metadata.managedFields = [
    { manager: "kubectl", operation: "Apply", fieldsV1: { "f:spec": { "f:template": {} } } },
  ];
  const replicaSetOf = (key: string, number: number, of: Any, replicas: number): Any => ({
    metadata: {
      name: `${name}-${key}`,
      uid: key,
      annotations: { [revision]: String(number) },
      ownerReferences: [{ uid }],
    },
    spec: { replicas, template: labelled(of, key) },
    status: { replicas },
  });
  const templates = [1, 2, 3].map((version) => ({ ...template, version }));
  let replicaSets = [...templates, template].map((it, index) =>
    replicaSetOf(`mine-${index}`, index + 1, it, it === template ? 2 : 0),
  );
  const podOf = (image: string, containers: Any, waiting?: Any): Any => ({
    metadata: { ...kubectlPod.metadata, name: `pod-${id()}`, uid: id() },
    spec: { ...kubectlPod.spec, containers },
    status: {
      phase: waiting === undefined ? "Running" : "Pending",
      conditions: waiting === undefined ? [{ type: "Ready", status: "True" }] : [],
      containerStatuses: [{ name, image, state: { waiting } }],
    },
  });
  let pods: Any[] = [];

  /** Simulates the controllers of Deployments and ReplicaSets. */
  const reconcile = () => {
    const { spec, metadata, status } = deployment;
    let current = replicaSets.find((it) => isDeepStrictEqual(unlabelled(it), spec.template));
    const last = Math.max(...replicaSets.map((it) => Number(it.metadata.annotations[revision])));
    if (current === undefined) {
      current = replicaSetOf(id(), last + 1, spec.template, 0);
      replicaSets.push(current);
    } else if (Number(current.metadata.annotations[revision]) !== last) {
      current.metadata.annotations = { [revision]: String(last + 1) };
    }
    const { containers } = spec.template.spec;
    const { image } = containers[0];
    const running = pods.filter(({ status: { phase } }) => phase === "Running");
    const isBad = image.endsWith("no-such-image");
    if (isBad) {
      const message = `Container image "${image}" is not present with pull policy of Never`;
      pods = [...running, podOf(image, containers, { reason: "ErrImageNeverPull", message })];
    } else {
      const keep = current.spec.replicas > 0 && running.length === spec.replicas;
      pods = keep ? running : Array.from({ length: spec.replicas }, () => podOf(image, containers));
      for (const set of replicaSets) {
        set.spec.replicas = set === current ? spec.replicas : 0;
        set.status.replicas = set.spec.replicas;
      }
      const old = replicaSets.filter((it) => it !== current);
      const dropped = old.slice(0, Math.max(0, old.length - spec.revisionHistoryLimit));
      replicaSets = replicaSets.filter((it) => !dropped.includes(it));
    }
    metadata.generation++;
    Object.assign(status, {
      replicas: pods.length,
      updatedReplicas: isBad ? 1 : spec.replicas,
      readyReplicas: spec.replicas,
      availableReplicas: spec.replicas,
    });
  };
  const scale = (replicas: number) => {
    deployment.spec.replicas = replicas;
    reconcile();
  };
  scale(faults.scaledUpMs === undefined ? 2 : 4);

  const patch = ({ body, query }: ApiRequest): ApiAnswer => {
    const manager = query.get("fieldManager");
    const takeOwnership = () => {
      deployment.metadata.managedFields = [
        { manager, operation: "Update", fieldsV1: { "f:spec": {} } },
      ];
    };
    if (Array.isArray(body)) {
      const [{ path, value }] = body;
      if (path === "/spec/template") deployment.spec.template = value;
      if (path === "/spec/revisionHistoryLimit") deployment.spec.revisionHistoryLimit = value;
      if (path === "/metadata/managedFields") deployment.metadata.managedFields = value;
      else takeOwnership();
    } else if (body.spec.revisionHistoryLimit !== undefined) {
      if (faults.patchFails) return { rejected: 500, message: 'failed calling webhook "a.b"' };
      patched = true;
      deployment.spec.revisionHistoryLimit = body.spec.revisionHistoryLimit;
      const [container] = deployment.spec.template.spec.containers;
      deployment.spec.template = structuredClone(deployment.spec.template);
      deployment.spec.template.spec.containers = [
        { ...container, ...body.spec.template.spec.containers[0] },
      ];
      takeOwnership();
      awayUntil = Date.now() + (faults.awayMs ?? 0);
    } else {
      const { metadata } = deployment.spec.template;
      deployment.spec.template = {
        ...deployment.spec.template,
        metadata: { ...metadata, annotations: body.spec.template.metadata.annotations },
      };
      takeOwnership();
    }
    reconcile();
    observedAt = Date.now() + observedAfterMs;
    return deployment;
  };

  const cluster = await testCluster((request) => {
    const { method, path } = request;
    if (Date.now() < awayUntil) return "closed";
    if (path === "/version") return { gitVersion: "v1.33.13" };
    if (scaleDownAt === undefined) scaleDownAt = Date.now() + (faults.scaledUpMs ?? 0);
    else if (Date.now() > scaleDownAt && deployment.spec.replicas > 2) scale(2);
    const [, plural, object] = /\/namespaces\/[^/]+\/([^/]+)(?:\/([^/]+))?$/.exec(path) ?? [];
    if (method === "PATCH") return patch(request);
    if (method === "DELETE") {
      replicaSets = replicaSets.filter((it) => it.metadata.name !== object);
      return { kind: "Status", status: "Success" };
    }
    if (plural === "deployments") {
      const { metadata, status } = deployment;
      if (Date.now() >= observedAt) status.observedGeneration = metadata.generation;
      return deployment;
    }
    if (plural === "pods") return { items: pods };
    if (plural === "replicasets") return { items: replicaSets };
    if (plural === "horizontalpodautoscalers" && faults.scaledUpMs !== undefined) {
      const behavior = { scaleDown: { stabilizationWindowSeconds: 1 } };
      const spec = { ...kubectlAutoscaler.spec, behavior, minReplicas: 2 };
      return { items: [{ ...kubectlAutoscaler, spec }] };
    }
    return { items: [] };
  });
  return {
    kubeconfig: cluster.kubeconfig,
    close: cluster.close,
    isPatched: () => patched,
    comeBack: () => {
      awayUntil = 0;
    },
    /** State that a drill must restore. */
    restorable: () =>
      structuredClone({
        template: deployment.spec.template,
        limit: deployment.spec.revisionHistoryLimit,
        owners: deployment.metadata.managedFields,
        versions: replicaSets.map(({ metadata }) => metadata.uid).sort(),
      }),
  };
}

/** Template of a ReplicaSet, with the label that identifies its pods. */
function labelled(template: Any, hash: string): Any {
  const labels = { ...template.metadata.labels, "pod-template-hash": hash };
  return { ...template, metadata: { ...template.metadata, labels } };
}

function unlabelled({ spec: { template } }: Any): Any {
  const { "pod-template-hash": _, ...labels } = template.metadata.labels;
  return { ...template, metadata: { ...template.metadata, labels } };
}
