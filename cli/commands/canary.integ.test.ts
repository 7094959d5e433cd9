import { execFileSync } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { stringify } from "yaml";
import { packageFolder } from "../../model-tools/files/folders.ts";
import { type ApiRequest, testCluster } from "../../verify/cluster/test-cluster-server.ts";
import { parseDrillRecord } from "../../verify/drills/drill-record.ts";
import { clipstack, standIns } from "../test-programs.ts";

/** The command with the objects of the real chart; the API server and the other actions of helm are stand-ins. */

const { CLIPSTACK_HELM } = process.env;
const path = [CLIPSTACK_HELM && join(CLIPSTACK_HELM, "bin"), process.env.PATH].join(delimiter);
const helm = (() => {
  try {
    return execFileSync("sh", ["-c", "command -v helm"], { env: { PATH: path } })
      .toString()
      .trim();
  } catch {
    return undefined;
  }
})();

const route = {
  enabled: true,
  parentRefs: [{ name: "public", sectionName: "https" }],
};
const backend = { name: "clipstack-embed", port: 8002, weight: 1 };

describe.skipIf(helm === undefined)(
  `clipstack canary${helm === undefined ? " (skipped: no helm)" : ""}`,
  () => {
    const folder = mkdtempSync(join(tmpdir(), "clipstack-canary-"));
    const env = {
      CLIPSTACK_ENVIRONMENTS_DIR: join(folder, "environments"),
      CDKTF_OUTDIR: join(folder, "cdktf.out"),
      INFERENCE_API_KEY: "key",
    };

    beforeAll(() => {
      mkdirSync(env.CLIPSTACK_ENVIRONMENTS_DIR);
      // synthesized files address the chart relative to their folder
      symlinkSync(join(packageFolder, "helm"), join(folder, "helm"));
    });

    const answerOf = (rules: { current: unknown }) => (request: ApiRequest) => {
      const { path, method, body } = request;
      const deployment = /\/deployments\/([\w-]+)$/.exec(path)?.[1];
      if (deployment !== undefined) {
        const counts = { replicas: 1, updatedReplicas: 1, availableReplicas: 1 };
        return {
          metadata: { name: deployment, uid: deployment, generation: 1 },
          spec: { replicas: 1, selector: {}, template: { spec: { containers: [] } } },
          status: { observedGeneration: 1, ...counts },
        };
      }
      if (path.endsWith("/query")) return { status: "success", data: { result: [] } };
      if (path.endsWith("/httproutes/clipstack-embed")) {
        if (method === "PATCH") rules.current = body[0].value;
        return { spec: { rules: rules.current } };
      }
      return /\/(pods|replicasets|horizontalpodautoscalers|nodes)$/.test(path)
        ? { items: [] }
        : undefined;
    };

    async function canary(httpRoute: object) {
      // as an interrupted run leaves it
      const rules = { current: [{ backendRefs: [{ ...backend, weight: 90 }] }] as unknown };
      const cluster = await testCluster(answerOf(rules));
      const programs = standIns();
      onTestFinished(() => {
        cluster.close();
        programs.remove();
      });
      const log = join(folder, "helm.log");
      writeFileSync(log, "");
      programs.put(
        "helm",
        `case $1 in
          template | version) exec ${helm} "$@" ;;
          status) echo '{"version":7}' ;;
          list) [ ! -s ${log} ] || echo clipstack-canary ;;
          *) echo "$1 $2 $3" >> ${log} ;;
        esac`,
      );
      const settings = {
        stack: "kubernetes",
        accelerator: "cpu",
        createNamespace: false,
        cluster: { kubeconfig: cluster.kubeconfig, context: "mine" },
        embed: { keySecret: "embed-key" },
        triton: { server: "emulator" },
        chartValues: { httpRoute },
      };
      writeFileSync(join(env.CLIPSTACK_ENVIRONMENTS_DIR, "production.yaml"), stringify(settings));
      const output = join(folder, "record.json");
      const report = ["--report", join(folder, "reports"), "--output", output];
      const result = await clipstack(["canary", "production", ...report], {
        ...env,
        PATH: [programs.folder, path].join(delimiter),
      });
      const record = existsSync(output)
        ? parseDrillRecord(readFileSync(output, "utf8"), output)
        : undefined;
      return { ...result, record, rules: rules.current, helm: readFileSync(log, "utf8") };
    }

    test("requires a route whose weights it can change", async () => {
      const { code, stderr } = await canary({ enabled: false });
      expect(stderr).toMatch(/production: chartValues.httpRoute.enabled must be true, because/);
      expect(code).toBe(2);
    });

    test("removes a candidate that cannot be verified, and leaves the release as it is", async () => {
      const { code, record, rules, helm } = await canary(route);
      expect(record?.checks.map(({ passed, message }) => [passed, message])).toEqual([
        [true, "registry.example/clipstack/embed:0.1.0"],
        [false, expect.stringMatching(/clipstack-canary-embed .*: the Service does not exist/)],
        [true, "clipstack-canary"],
      ]);
      expect(rules).toEqual([{ backendRefs: [backend] }]);
      expect(helm).toBe(
        "upgrade --install clipstack-canary\nuninstall clipstack-canary --namespace\n",
      );
      expect(code).toBe(1);
    });
  },
);
