import type { ResourceChange, StackChange } from "../input/change.ts";
import { isOneShot, withoutKey } from "../input/stack-facts.ts";
import { canonical, isObject } from "../input/value-paths.ts";
import { environmentBefore, environmentOf } from "./facts.ts";
import { each, type ReviewRule, rule } from "./rule.ts";
import { at, isGiven, text } from "./values.ts";

/** Resources of some types that go, or go and come back empty, while the stack stays. */
function lost(types: RegExp) {
  return (change: StackChange): readonly ResourceChange[] =>
    isDestroyed(change)
      ? []
      : change.resources.filter(
          ({ action, mode, type }) =>
            (action === "delete" || action === "replace") && mode === "managed" && types.test(type),
        );
}

function fate(action: ResourceChange["action"]): string {
  return action === "replace" ? "destroyed and made again" : "destroyed";
}

/** Whether nothing of the stack is left. */
function isDestroyed({ resources }: StackChange): boolean {
  const managed = resources.filter(({ mode }) => mode === "managed");
  return managed.length > 0 && managed.every(({ action }) => action === "delete");
}

/** What the change itself does. */
export const changeRules: readonly ReviewRule[] = [
  rule({
    id: "renamed-resource",
    severity: "error",
    title: "A resource that only has another address is moved.",
    rationale:
      "The id of a construct is part of the Terraform address. With another id Terraform destroys the resource and makes it again: downtime for a rename, and often a conflict of two that have one name.",
    inputs:
      "Resources of one type of which one goes and one comes with the same name (or, without a name, the same values). Steps of a deployment, in which nothing runs afterwards, are none of them.",
    fix: "keep the id of the construct, or say that it moved: stack.addOverride('moved', [{ from, to }]) with both addresses",
    example: {
      stack: "single-gpu",
      message:
        "goes, and docker_volume.triton-onnx_config_volume_7C66A47E comes with the same name: a renamed construct",
      edits: [
        {
          at: ["resource", "docker_volume", "triton-onnx/configuration/volume"],
          failing: undefined,
        },
        {
          at: ["resource", "docker_volume", "triton-onnx_config_volume_7C66A47E"],
          failing: { name: "single-gpu-triton-onnx-config" },
          passing: undefined,
        },
      ],
    },
    *find({ resources }) {
      const created = new Map<string, ResourceChange>();
      for (const it of resources) {
        const identity = identityOf(it, it.after);
        if (it.action === "create" && it.movedFrom === undefined && identity !== undefined) {
          created.set(identity, it);
        }
      }
      for (const it of resources) {
        const identity = it.action === "delete" ? identityOf(it, it.before) : undefined;
        const twin = identity === undefined ? undefined : created.get(identity);
        // another key of one `for_each` is another instance
        if (twin === undefined || withoutKey(twin.address) === withoutKey(it.address)) continue;
        yield {
          address: it.address,
          message: `goes, and ${twin.address} comes with the same name: a renamed construct`,
          fix: `keep the id of the construct, or say that it moved: stack.addOverride("moved", [{ from: "${withoutKey(it.address)}", to: "${withoutKey(twin.address)}" }])`,
        };
      }
    },
  }),
  rule({
    id: "volume-lost",
    severity: "warning",
    title: "A volume keeps what is on it.",
    rationale:
      "With the volume goes what no file of the project has: TensorRT's engines are compiled for minutes again, weights are copied again, and what somebody put there by hand is gone.",
    inputs:
      "`docker_volume` and `kubernetes_persistent_volume_claim` that are destroyed or replaced, while the stack stays.",
    fix: "check that everything on it can be made again, and plan for the longer start",
    example: {
      stack: "single-gpu",
      message:
        "the volume single-gpu-triton-trt-engines-sm89-26.07-py3 is destroyed: TensorRT compiles its engines again",
      edits: [
        { at: ["resource", "docker_volume", "triton-trt/engine-cache/volume"], failing: undefined },
      ],
    },
    find: each(
      lost(/^(docker_volume|kubernetes_persistent_volume_claim(_v1)?)$/),
      ({ name: id, before, action }) => {
        const name = text(before?.name) ?? text(at(before?.metadata, "name"));
        const engines = /engines/.test(name ?? id) ? ": TensorRT compiles its engines again" : "";
        return `the volume${name === undefined ? "" : ` ${name}`} is ${fate(action)}${engines}`;
      },
    ),
  }),
  rule({
    id: "cluster-lost",
    severity: "error",
    title: "A cluster that runs services stays.",
    rationale: "With a kind cluster goes everything in it, also what others have deployed there.",
    inputs:
      "The `terraform_data` of a kind cluster that is destroyed or replaced, while the stack stays.",
    fix: "undo the change to the cluster, or destroy the whole environment first and deploy again",
    example: {
      stack: "kind-local",
      message: "the kind cluster is destroyed, with everything in it",
      edits: [{ at: ["resource", "terraform_data", "cluster/cluster"], failing: undefined }],
    },
    find: each(lost(/^terraform_data$/), ({ before, action }) =>
      isGiven(at(before?.input, "portMappings"))
        ? `the kind cluster is ${fate(action)}, with everything in it`
        : undefined,
    ),
  }),
  rule({
    id: "namespace-lost",
    severity: "error",
    title: "A namespace that has services stays.",
    rationale:
      "With a namespace go all objects in it, also volumes and Secrets that no stack knows of.",
    inputs: "Namespaces that are destroyed or replaced, while the stack stays.",
    fix: "undo the change, or destroy the whole environment first and deploy again",
    example: {
      stack: "k8s-gpu",
      message: "the namespace clipstack is destroyed, with everything in it",
      edits: [
        { at: ["resource", "kubernetes_namespace_v1", "inference/namespace"], failing: undefined },
      ],
    },
    find: each(lost(/^kubernetes_namespace(_v1)?$/), ({ name, before, action }) => {
      const shown = text(at(before?.metadata, "name")) ?? name;
      return `the namespace ${shown} is ${fate(action)}, with everything in it`;
    }),
  }),
  rule({
    id: "environment-lost",
    severity: "warning",
    title: "An environment is taken away on purpose.",
    rationale: "Every endpoint goes away, and with it whatever asks there.",
    inputs: "Whether every resource of the stack is destroyed.",
    fix: "make sure that nobody uses its endpoints any more",
    example: {
      stack: "single-gpu",
      message:
        "everything is destroyed: nobody answers any more at http://127.0.0.1:8002, http://127.0.0.1:8010, 127.0.0.1:8011, http://127.0.0.1:8020, 127.0.0.1:8021",
      edits: [{ at: ["resource"], failing: {} }],
    },
    *find(change) {
      if (!isDestroyed(change)) return;
      const urls = environmentBefore(change)?.services.flatMap(({ endpoints }) =>
        endpoints.filter(({ name }) => name !== undefined).map(({ url }) => url),
      );
      yield {
        message: `everything is destroyed${urls === undefined ? "" : `: nobody answers any more at ${urls.join(", ")}`}`,
      };
    },
  }),
  rule({
    id: "environment-described",
    severity: "warning",
    title: "An environment says what its services are.",
    rationale:
      "A review knows from the output `environment` which container is which service, where it answers and on which GPU. Without it, whatever happens to a service afterwards looks harmless; `clipstack verify` and the client do not find it either.",
    inputs:
      "Whether the output `environment` is there, and is of the form that this version reads, where it was before or where it has services.",
    fix: "keep the output environment, and review with the version of the project that wrote it",
    example: {
      stack: "single-gpu",
      message:
        "the output environment is gone: rules about services and GPUs (endpoint-changed, cost-rise, model-fits-gpu and more) find nothing from now on",
      edits: [{ at: ["output", "environment"], failing: undefined }],
    },
    *find(change) {
      if (isDestroyed(change) || environmentOf(change) !== undefined) return;
      const { environmentAfter: given } = change;
      const wasRead = environmentBefore(change) !== undefined;
      // an output of this name may be that of another project
      if (!wasRead && !(isObject(given) && Array.isArray(given.services))) return;
      const fate = isGiven(given) ? "cannot be read" : "is gone";
      yield {
        message: `the output environment ${fate}: rules about services and GPUs (endpoint-changed, cost-rise, model-fits-gpu and more) find nothing from now on`,
      };
    },
  }),
  rule({
    id: "endpoint-changed",
    severity: "warning",
    title: "Clients find a service where it was.",
    rationale:
      "Clients, dashboards and the tunnels of people have the old address. A key that is asked for from now on turns every one of them away.",
    inputs:
      "The endpoints and the authorization of every service in the output `environment`, before and after.",
    fix: "tell the clients, or keep the old endpoint until they have moved",
    example: {
      stack: "single-gpu",
      message:
        "embed: embed-http is no longer at http://127.0.0.1:8002, but at http://127.0.0.1:8102",
      edits: [
        {
          at: ["output", "environment", "value", "services", 0, "endpoints", 0, "url"],
          failing: "http://127.0.0.1:8102",
          passing: "http://127.0.0.1:8002",
        },
      ],
    },
    *find(change) {
      const [before, after] = [environmentBefore(change), environmentOf(change)];
      if (before === undefined || after === undefined) return;
      for (const old of before.services) {
        const now = after.services.find(({ name }) => name === old.name);
        if (now === undefined) {
          yield { message: `the service ${old.name} goes away` };
          continue;
        }
        for (const { name, url } of old.endpoints) {
          const same = now.endpoints.some((it) => it.url === url && it.name === name);
          if (name === undefined || same) continue;
          const moved = now.endpoints.find((it) => it.name === name);
          yield {
            message: `${old.name}: ${name} is no longer at ${url}${moved === undefined ? "" : `, but at ${moved.url}`}`,
          };
        }
        if (old.authorization === undefined && now.authorization !== undefined) {
          yield { message: `${old.name} asks for a key (${now.authorization}), which it did not` };
        }
      }
    },
  }),
  rule({
    id: "cost-rise",
    severity: "warning",
    title: "An environment does not get half as dear again unnoticed.",
    rationale:
      "A count or a kind of GPU is one word in the settings, and thousands of dollars a month.",
    inputs: "Dollars an hour of the output `environment`, before and after.",
    fix: "check the GPUs in the settings (host.gpu, host.count, nodePool)",
    example: {
      stack: "single-gpu",
      message: "costs $8 an hour in place of $2 (1 rtx-4080 in place of 1 rtx-4080)",
      edits: [
        {
          at: ["output", "environment", "value", "gpu", "usdPerHour"],
          failing: 8,
          passing: 2,
        },
      ],
    },
    *find(change) {
      const [before, after] = [environmentBefore(change)?.gpu, environmentOf(change)?.gpu];
      if (before === undefined || after === undefined) return;
      if (after.usdPerHour < before.usdPerHour * 1.5 || before.usdPerHour === 0) return;
      yield {
        message: `costs ${dollars(after.usdPerHour)} an hour in place of ${dollars(before.usdPerHour)} (${after.count} ${after.name} in place of ${before.count} ${before.name})`,
      };
    },
  }),
  rule({
    id: "changed-outside",
    severity: "warning",
    title: "What is deployed is what Terraform made.",
    rationale:
      "Somebody changed it by hand, and the apply undoes that: perhaps it was the repair of last night.",
    inputs:
      "What a plan reports as changed outside of Terraform. Two synthesized trees do not know it.",
    fix: "find out who changed it and why, and bring it into the settings or let it go",
    example: {
      stack: "single-gpu",
      message: "was changed outside of Terraform",
      drift: true,
      edits: [],
    },
    find: each(
      ({ drift }) => drift,
      ({ action }) =>
        action === "delete" ? "is gone, outside of Terraform" : "was changed outside of Terraform",
    ),
  }),
];

/** What a resource is called by its provider; the same for two is one thing with two addresses. */
function identityOf({ type }: ResourceChange, values: ResourceChange["after"]): string | undefined {
  if (values === undefined || isStep(type, values)) return undefined;
  const metadata = at(values, "metadata", "name");
  const namespace = at(values, "metadata", "namespace") ?? at(values, "namespace");
  const name = values.name ?? metadata;
  if (isGiven(name)) return `${type} ${String(name)} ${String(namespace ?? "")}`;
  const { id: _id, output: _output, "//": _metadata, ...own } = values;
  const given = Object.values(own).filter(isGiven);
  return given.length === 0 ? undefined : `${type} ${canonical(own)}`;
}

/** What is made anew without anybody who waits for it. */
function isStep(type: string, values: NonNullable<ResourceChange["after"]>): boolean {
  if (type === "terraform_data") return !isGiven(at(values.input, "portMappings"));
  return type === "null_resource" || (type === "docker_container" && isOneShot(values));
}

function dollars(usdPerHour: number): string {
  return `$${Number(usdPerHour.toFixed(2))}`;
}
