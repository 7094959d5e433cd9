import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { recordText, reportName } from "../../report/save-reports.ts";
import { runMain } from "../load/run-main.ts";
import { missingParts } from "./cluster.ts";
import { productionCluster } from "./production-cluster.ts";

const usage = `npm run lab -- production-cluster [--report FOLDER]

Creates a kind cluster with Traefik, Prometheus and KEDA, installs the chart on the CPU, and shows under load: HTTPS through an HTTPRoute and an Ingress, a GRPCRoute,
scraped ServiceMonitors, scaling from 0 to 1, 4, 1 and 0 Triton servers, a promoted and a rolled-back canary, and pods with a random user. The cluster is removed afterwards. lab/production-cluster/README.md lists the programs that it needs.

  --report FOLDER  folder of the record (default: bench/reports)

Exit codes: 0 everything was shown or a program is missing, 1 something failed, 2 wrong usage.`;

await runMain(
  usage,
  { report: { type: "string", default: join("bench", "reports") } },
  async ({ report }, signal) => {
    const missing = await missingParts(
      [
        "CLIPSTACK_KEDA",
        "CLIPSTACK_GATEWAY_API",
        "CLIPSTACK_KUBERNETES_SCHEMAS",
        "CLIPSTACK_TRAEFIK",
      ],
      ["openssl"],
    );
    if (missing.length > 0) {
      console.log(`production-cluster skipped: ${missing.join(", ")}`);
      return true;
    }
    const record = await productionCluster(signal, (line) => console.log(line));
    await mkdir(report, { recursive: true });
    const file = join(report, `${reportName(record.startedAt, record.kind)}.json`);
    await writeFile(file, recordText(record));
    console.log("\n| | behaviour | observed |\n| --- | --- | --- |");
    for (const { claim, passed, observed } of record.findings) {
      console.log(`| ${passed ? "✔" : "✘"} | ${claim} | ${observed} |`);
    }
    console.log(`\nrecord: ${file}`);
    return record.findings.every(({ passed }) => passed);
  },
);
