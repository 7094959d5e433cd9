import { existsSync } from "node:fs";
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { execa } from "execa";
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { freePorts } from "../../artefact/free-ports.ts";
import { dinov2Small as second } from "../../contract/models/dinov2-small.ts";
import { defaultModel } from "../../contract/models/index.ts";
import { tritonModelName } from "../../contract/triton-models.ts";
import { ensureTinyModel } from "../../model-tools/generate/generate.ts";
import {
  autoscalersSee,
  clusterName,
  deleteCluster,
  kindEnvironment,
  missingForCharts,
  missingForCluster,
  noteCluster,
} from "./test-cluster.ts";
import { command, succeed, testDocker } from "./test-docker.ts";
import { findsProvider, type KindProject, kindProject } from "./test-kind-project.ts";
import { embedOnce } from "./test-load.ts";
import { builtImage } from "./test-project.ts";

/**
 * Life cycle of the environment with two tiny models: deploy, verify, drills, deploy again, destroy. If Terraform finds the Kubernetes
 * provider, `cdktf deploy` deploys the unmodified stack; otherwise `kubectl` applies the manifests of its typed objects.
 */

const { CLIPSTACK_KIND_NODE_IMAGE: nodeImage } = process.env;
const { docker } = await testDocker();
const missing = await missingForCluster();
// the stack declares both providers for every value of deployWith
const typed =
  missing === "" && (await findsProvider("kubernetes")) && (await findsProvider("helm"));
const noProviders = "terraform init finds no providers for Kubernetes and Helm";
const noChart = typed ? await missingForCharts() : noProviders;
const how = typed ? "with cdktf deploy" : `its objects with kubectl: ${noProviders}`;
const guides = new URL("../../docs/guides/", import.meta.url);
const photo = await readFile(
  fileURLToPath(new URL("../../model-tools/samples/dunes.jpg", import.meta.url)),
);

describe.skipIf(missing !== "")(
  `kind-local, deployed ${missing === "" ? `(${how})` : `(skipped: ${missing})`}`,
  () => {
    const name = clusterName();
    let kind: KindProject;
    let before: readonly string[];
    let url: string;

    const settings = (more: Readonly<Record<string, unknown>> = {}) =>
      kind.project.settings("kind-local", {
        cluster: {
          name,
          portMappings: [{ nodePort: 30092, hostPort: Number(new URL(url).port) }],
          kubeconfig: kind.kubeconfig,
          ...(nodeImage === undefined ? {} : { nodeImage }),
        },
        models: [{ name: defaultModel.name, modalities: ["image"] }, second.name],
        embed: { image: builtImage() },
        // shorter than the default, for a quick scale-down
        autoscaler: { maxReplicas: 4, scaleDownWindowSeconds: 15 },
        ...more,
      });
    const clusters = async () =>
      (await succeed("kind", ["get", "clusters"], { env: kindEnvironment })).split("\n");
    /** kind keeps its network for the next cluster. */
    const contents = async () => (await docker.contents()).filter((it) => it !== "network kind");
    const drill = async (which: string) => {
      const record = join(kind.project.folder, `${which}.json`);
      const { code, output } = await kind.project.clipstack(
        ...["k8s", which, "kind-local", "--output", record],
      );
      expect(code, output).toBe(0);
      return JSON.parse(await readFile(record, "utf8"));
    };

    beforeAll(async () => {
      await noteCluster(name);
      before = await contents();
      kind = await kindProject(docker, typed ? "cdktf" : "kubectl");
      const weights = join(
        kind.project.folder,
        ...["model_repository", tritonModelName(second, "fp32"), "1/model.onnx"],
      );
      await mkdir(dirname(weights), { recursive: true });
      await cp(await ensureTinyModel(second, "image"), weights);
      const [port] = await freePorts(1);
      url = `http://127.0.0.1:${port}`;
      await settings();
    });
    afterAll(async () => {
      try {
        await kind?.remove();
      } finally {
        if ((await clusters()).includes(name)) await deleteCluster(name, kind.kubeconfig);
      }
    });

    test("one deployment creates the cluster, builds and loads the image, and succeeds once every pod is ready", async () => {
      const { code, output } = await kind.deploy();
      expect(code, output).toBe(0);
      expect(await clusters()).toContain(name);
      expect(await embedOnce(url, photo)).toHaveLength(512);
      expect(await embedOnce(url, photo, second.name)).toHaveLength(second.embedding.width);
    });

    test("the autoscaler receives the CPU use of the pods", async () => {
      await autoscalersSee(kind.kubeconfig);
    });

    test("verify passes", async () => {
      const { code, output } = await kind.project.clipstack(
        ...["verify", "kind-local", "--target", "deployed", "--seconds", "1"],
        ...["--report", join(kind.project.folder, "reports")],
      );
      expect(code, output).toBe(0);
    });

    test("a rolling update under load loses no request, and a bad image removes no pod", async () => {
      expect(await drill("rollout")).toMatchObject({ passed: true });
    });

    test("the autoscaler adds pods under load and removes them afterwards", async () => {
      expect(await drill("scale")).toMatchObject({ passed: true });
    });

    test("the PodDisruptionBudget rejects the eviction of a second pod", async () => {
      expect(await drill("drain")).toMatchObject({ passed: true });
    });

    test("the API server rejects pods over the quota", async () => {
      expect(await drill("quota")).toMatchObject({ passed: true });
    });

    test("every command of the guide to Kubernetes runs, and leaves the deployment as declared", async () => {
      const cwd = kind.project.folder;
      const env = { ...kindEnvironment, KUBECONFIG: kind.kubeconfig };
      const [port] = await freePorts(1);
      await writeFile(join(cwd, "photo.jpg"), photo);
      const image = await succeed(
        "kubectl",
        ["-n", "clipstack", "get", "deployment/clipstack-embed", "--output=jsonpath={..image}"],
        { env },
      );
      const guide = await readFile(new URL("kubernetes-practice.md", guides), "utf8");
      await mkdir(join(cwd, "overlay"), { recursive: true });
      for (const [, language, text = ""] of guide.matchAll(/^```(sh|yaml)\n(.*?)^```/gms)) {
        if (language === "yaml") {
          await writeFile(join(cwd, "overlay/kustomization.yaml"), text);
          continue;
        }
        const here = text
          .replaceAll("8002:8002", `${port}:8002`)
          .replaceAll("127.0.0.1:8002", `127.0.0.1:${port}`)
          .replaceAll("clipstack/embed:k8s-cpu", image)
          .replaceAll("npx clipstack", `node ${join(cwd, "cli/clipstack.mjs")}`);
        if (here.includes("port-forward")) {
          const forward = execa("sh", ["-c", `exec ${here}`], { cwd, env, reject: false });
          onTestFinished(() => void forward.kill());
          await expect
            .poll(() => fetch(`http://127.0.0.1:${port}/readyz`).then((it) => it.status, String))
            .toBe(200);
        } else {
          const { code, output } = await command("sh", ["-ec", here], { cwd, env });
          expect(code, output).toBe(0);
        }
      }
    });

    test("a second deployment plans no change", async () => {
      expect(await kind.changes()).toBe("");
    });

    test.skipIf(noChart !== "")(
      `the chart takes the place of the typed resources${noChart && ` (skipped: ${noChart})`}`,
      async () => {
        await settings({ deployWith: "helm" });
        const { code, output } = await kind.deploy();
        expect(code, output).toBe(0);
        expect(await embedOnce(url, photo)).toHaveLength(512);
        await autoscalersSee(kind.kubeconfig);
        const verified = await kind.project.clipstack(
          ...["verify", "kind-local", "--target", "deployed", "--seconds", "1"],
          ...["--report", join(kind.project.folder, "reports")],
        );
        expect(verified.code, verified.output).toBe(0);
        expect(await kind.changes()).toBe("");
      },
    );

    test("destroy leaves no cluster, container, volume or image, and no context", async () => {
      const { code, output } = await kind.destroy();
      expect(code, output).toBe(0);
      expect(await clusters()).not.toContain(name);
      expect(await contents()).toEqual(before);
      if (existsSync(kind.kubeconfig)) {
        expect(await readFile(kind.kubeconfig, "utf8")).not.toContain(name);
      }
    });
  },
);
