#!/usr/bin/env node
// For tests: a kubectl that keeps one Deployment in `cluster.json`, beside the kubeconfig that it is given. Its words are those
// of kubectl 1.33; its controllers act at once, and a pod with an image that is not there never becomes ready.
import { readFileSync, renameSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { dirname, join } from "node:path";
import { isDeepStrictEqual } from "node:util";

const args = process.argv.slice(2);
const option = (name) => args.find((it) => it.startsWith(`--${name}=`))?.slice(`--${name}=`.length);
const file = join(dirname(option("kubeconfig")), "cluster.json");
const read = () => JSON.parse(readFileSync(file, "utf8"));

function write(state) {
  writeFileSync(`${file}.${process.pid}`, JSON.stringify(state));
  renameSync(`${file}.${process.pid}`, file);
}

/** What the controllers of Deployments and ReplicaSets make of a change. */
function reconcile(state) {
  const { spec, metadata, status } = state.deployment;
  const uid = () => `made-${++state.made}`;
  let current = state.replicaSets.find((it) => isDeepStrictEqual(it.spec.template, spec.template));
  if (current === undefined) {
    const id = uid();
    current = {
      metadata: {
        name: `${metadata.name}-${id}`,
        uid: id,
        ownerReferences: [{ uid: metadata.uid }],
      },
      spec: { replicas: 0, template: spec.template },
      status: { replicas: 0 },
    };
    state.replicaSets.push(current);
  }
  if (state.replicaSets.at(-1) !== current || current.spec.replicas === 0) {
    state.replicaSets = [...state.replicaSets.filter((it) => it !== current), current];
  }
  const [{ name, image }] = spec.template.spec.containers;
  const isBad = image.endsWith("no-such-image");
  const podOf = (conditions, waiting) => {
    const id = uid();
    return {
      metadata: { ...state.pod.metadata, name: `pod-${id}`, uid: id },
      spec: { ...state.pod.spec, containers: spec.template.spec.containers },
      status: {
        phase: waiting === undefined ? "Running" : "Pending",
        conditions,
        containerStatuses: [{ name, image, state: { waiting } }],
      },
    };
  };
  const readyPods = state.pods.filter(({ status: { phase } }) => phase === "Running");
  const isNew = (pod) => isDeepStrictEqual(pod.spec.containers, spec.template.spec.containers);
  if (isBad) {
    const message = `Container image "${image}" is not present with pull policy of Never`;
    state.pods = [...readyPods, podOf([], { reason: "ErrImageNeverPull", message })];
  } else {
    const keep = current.spec.replicas > 0 && readyPods.every(isNew);
    const ready = [{ type: "Ready", status: "True" }];
    state.pods = keep
      ? readyPods
      : Array.from({ length: spec.replicas }, () => podOf(ready, undefined));
    for (const set of state.replicaSets) {
      const replicas = set === current ? spec.replicas : 0;
      set.spec.replicas = replicas;
      set.status.replicas = replicas;
    }
    const old = state.replicaSets.filter((it) => it !== current);
    const dropped = old.slice(0, Math.max(0, old.length - spec.revisionHistoryLimit));
    state.replicaSets = state.replicaSets.filter((it) => !dropped.includes(it));
  }
  metadata.generation++;
  Object.assign(status, {
    observedGeneration: metadata.generation,
    replicas: state.pods.length,
    updatedReplicas: isBad ? 1 : spec.replicas,
    readyReplicas: spec.replicas,
    availableReplicas: spec.replicas,
  });
}

function serve(socket) {
  const server = createServer((request, response) => {
    const state = read();
    const answer = (body, code = 200) => {
      response.writeHead(code, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    const path = request.url.split("?")[0];
    if (path === "/version") return answer({ gitVersion: "v1.33.13" });
    if (Date.now() < state.awayUntil) {
      response.writeHead(502);
      return response.end("dial tcp 127.0.0.1:6443: connect: connection refused");
    }
    const [, plural, name] = /\/namespaces\/[^/]+\/([^/]+)(?:\/([^/]+))?$/.exec(path) ?? [];
    if (request.method === "DELETE" && plural === "replicasets") {
      state.replicaSets = state.replicaSets.filter((it) => it.metadata.name !== name);
      write(state);
      return answer({ kind: "Status", status: "Success" });
    }
    if (plural === "deployments") return answer(state.deployment);
    if (plural === "pods") return answer({ items: state.pods });
    if (plural === "replicasets") return answer({ items: state.replicaSets });
    answer({ items: [] });
  });
  server.listen(socket, () => console.log(`Starting to serve on ${socket}`));
  process.on("SIGTERM", () => process.exit(0));
}

function fail(text) {
  console.error(text);
  process.exit(1);
}

function change() {
  const state = read();
  if (Date.now() < state.awayUntil) {
    fail(
      "The connection to the server 127.0.0.1:6443 was refused - did you specify the right host or port?",
    );
  }
  const { deployment } = state;
  const take = (manager) => {
    deployment.metadata.managedFields = [
      { manager, operation: "Update", fieldsV1: { "f:spec": {} } },
    ];
  };
  const patch = JSON.parse(option("patch") ?? "null");
  if (args.includes("--type=strategic")) {
    if (state.patchFails) {
      fail(
        'Error from server (InternalError): Internal error occurred: failed calling webhook "a.b"',
      );
    }
    const { revisionHistoryLimit, template } = patch.spec;
    deployment.spec.revisionHistoryLimit = revisionHistoryLimit;
    Object.assign(deployment.spec.template.spec.containers[0], template.spec.containers[0]);
    take("kubectl-patch");
    if (state.awayMs > 0) state.awayUntil = Date.now() + state.awayMs;
  } else if (patch !== null) {
    const [{ path, value }] = patch;
    if (path === "/spec/template") deployment.spec.template = value;
    if (path === "/spec/revisionHistoryLimit") deployment.spec.revisionHistoryLimit = value;
    if (path === "/metadata/managedFields") deployment.metadata.managedFields = value;
    else take("kubectl-patch");
  } else if (args.includes("restart")) {
    const { metadata } = deployment.spec.template;
    metadata.annotations = { "kubectl.kubernetes.io/restartedAt": new Date().toISOString() };
    take("kubectl-rollout");
  } else {
    deployment.spec.template = state.replicaSets.at(-2).spec.template;
    take("kubectl-rollout");
  }
  reconcile(state);
  write(state);
  const done = args.includes("restart") ? "restarted" : patch === null ? "rolled back" : "patched";
  console.log(`deployment.apps/${deployment.metadata.name} ${done}`);
}

const socket = option("unix-socket");
if (socket === undefined) change();
else serve(socket);
