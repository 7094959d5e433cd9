import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { standIns } from "../../cli/test-programs.ts";
import { podObjectName } from "../../contract/pods.ts";
import { kindEnvironment } from "./test-cluster.ts";
import { command, type Docker, type Outcome, succeed } from "./test-docker.ts";
import { type TestProject, testProject } from "./test-project.ts";
import { providerEnvironment } from "./test-providers.ts";
import { applyWithKubectl, type SynthesizedStack } from "./test-typed-objects.ts";

/** Test fixture: `kind-local` with its own cluster, which the deployment creates and the destroy removes. */

const environment = "kind-local";

/** Returns whether `terraform init` finds a provider. */
export async function findsProvider(name: "kubernetes" | "helm"): Promise<boolean> {
  const folder = await mkdtemp(join(tmpdir(), "clipstack-provider-"));
  try {
    const terraform = { required_providers: { [name]: { source: `hashicorp/${name}` } } };
    await writeFile(join(folder, "main.tf.json"), JSON.stringify({ terraform }));
    const env = { ...process.env, ...(await providerEnvironment(folder)), CHECKPOINT_DISABLE: "1" };
    const { code } = await command("terraform", ["init", "-input=false"], { cwd: folder, env });
    return code === 0;
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

export interface KindProject {
  readonly project: TestProject;
  readonly kubeconfig: string;
  deploy(): Promise<Outcome>;
  /** Changes that a second deployment would make; empty if none. */
  changes(): Promise<string>;
  destroy(): Promise<Outcome>;
  /** Destroys the deployment in any state and removes the folder. */
  remove(): Promise<void>;
}

/** @param deployWith - `kubectl` if Terraform finds no Kubernetes provider: applies the synthesized objects */
export async function kindProject(
  docker: Docker,
  deployWith: "cdktf" | "kubectl",
): Promise<KindProject> {
  const programs = standIns();
  const project = await testProject({
    docker,
    variables: kindEnvironment,
    ...(deployWith === "kubectl" ? { binary: join(programs.folder, "terraform") } : {}),
  });
  const kubeconfig = join(project.folder, "kubeconfig");
  if (deployWith === "cdktf") {
    return {
      project,
      kubeconfig,
      deploy: () => project.deploy(environment),
      changes: async () => (await project.plan(environment)).join("\n"),
      destroy: () => project.destroy(environment),
      remove: async () => {
        await project.remove();
        programs.remove();
      },
    };
  }

  const stackFolder = join(project.folder, "cdktf.out", "stacks", environment);
  // same depth as the stack's folder, because its paths are relative
  const folder = join(project.folder, "cdktf.out", "with-kubectl", environment);
  const manifests = join(project.folder, "objects.yaml");
  // commands run Terraform in the stack's own folder
  const here = `case $1 in -chdir=*/stacks/${environment}) shift; set -- "-chdir=${folder}" "$@";; esac`;
  programs.put("terraform", `${here}\nexec ${await pathOf("terraform")} "$@"`);
  const terraform = (...words: readonly string[]) => project.terraform(folder, ...words);
  const kubectl = `kubectl --kubeconfig=${kubeconfig}`;
  const apply = [
    `node ${join(project.folder, "cli/clipstack.mjs")} k8s manifests ${environment} --no-synth --image "$IMAGE" > ${manifests}`,
    // a dry run too rejects objects of a missing namespace
    `namespace=$(sed -n '/^kind: Namespace$/,/^---$/s/^  name: //p' ${manifests})`,
    `{ ${kubectl} get namespace "$namespace" || ${kubectl} create namespace "$namespace"; }`,
    `${kubectl} apply --server-side --force-conflicts --dry-run=server -f ${manifests}`,
    `${kubectl} apply --server-side --force-conflicts -f ${manifests}`,
  ].join(" && ");
  const synthesize = async () => {
    await project.synthesize();
    const stack: SynthesizedStack = JSON.parse(
      await readFile(join(stackFolder, "cdk.tf.json"), "utf8"),
    );
    const applied = applyWithKubectl(stack, { command: apply, workload: podObjectName("embed") });
    await mkdir(folder, { recursive: true });
    await writeFile(join(folder, "cdk.tf.json"), JSON.stringify(applied));
  };
  let deployed = false;
  const kind: KindProject = {
    project,
    kubeconfig,
    deploy: async () => {
      deployed = true;
      await synthesize();
      const init = await terraform("init", "-input=false");
      if (init.code !== 0) return init;
      // marks the folder as deployed
      await mkdir(join(stackFolder, ".terraform"), { recursive: true });
      return terraform("apply", "-input=false", "-auto-approve");
    },
    changes: async () => {
      await synthesize();
      const plan = await terraform("plan", "-input=false", "-detailed-exitcode");
      const where = ["--kubeconfig", kubeconfig];
      const drift = await command(
        "kubectl",
        [...where, "diff", "--server-side", "--force-conflicts", "-f", manifests],
        { env: kindEnvironment },
      );
      return [plan, drift].map(({ code, output }) => (code === 0 ? "" : output)).join("");
    },
    destroy: async () => {
      const outcome = await terraform("destroy", "-input=false", "-auto-approve");
      if (outcome.code === 0) deployed = false;
      return outcome;
    },
    remove: async () => {
      if (deployed) await kind.destroy();
      await project.remove();
      programs.remove();
    },
  };
  return kind;
}

async function pathOf(program: string): Promise<string> {
  return (await succeed("sh", ["-c", `command -v ${program}`])).trim();
}
