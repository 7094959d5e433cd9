import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { recordText, reportName } from "../../report/save-reports.ts";
import { numberOption, runMain } from "../load/run-main.ts";
import { missingParts } from "../production-cluster/cluster.ts";
import { bulkCluster } from "./bulk-cluster.ts";

const usage = `npm run lab -- bulk-cluster [--images NUMBER] [--report FOLDER]

Embeds images of a bucket on a kind cluster with the chart's Indexed Job, undisturbed and then with killed pods and a bucket that throttles,
and compares the tables row by row. The cluster is removed afterwards. lab/bulk-cluster/README.md lists the programs that it needs.

  --images NUMBER  images in the bucket (default: 200000)
  --report FOLDER  folder of the record (default: bench/reports)

Exit codes: 0 everything was shown or a program is missing, 1 something failed, 2 wrong usage.`;

await runMain(
  usage,
  {
    images: { type: "string", default: "200000" },
    report: { type: "string", default: join("bench", "reports") },
  },
  async ({ images, report }, signal) => {
    const count = numberOption("--images", images);
    const missing = await missingParts(["CLIPSTACK_S3_SERVER"]);
    if (missing.length > 0) {
      console.log(`bulk-cluster skipped: ${missing.join(", ")}`);
      return true;
    }
    const record = await bulkCluster(count, signal, (line) => console.log(line));
    await mkdir(report, { recursive: true });
    const file = join(report, `${reportName(record.startedAt, record.kind)}.json`);
    await writeFile(file, recordText(record));
    console.log(`record: ${file}`);
    return record.problems.length === 0;
  },
);
