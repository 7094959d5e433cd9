import { execFile } from "node:child_process";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { ciScript } from "../../client/triton/test-python.ts";
import { tinyModel } from "../../model-tools/test-model.ts";
import { type RunningEmbedServer, startEmbedServer } from "../embed/embed-server.ts";
import { readSettings } from "./settings.ts";

/** Requests that Schemathesis makes of the OpenAPI document, and its checks of the answers. */

const { path: venv, missing } = await ciScript("python-venv", "schemathesis");
const config = fileURLToPath(new URL("./test-schemathesis.toml", import.meta.url));

describe.skipIf(missing !== "")(
  `Schemathesis from PyPI${missing === "" ? "" : ` (not here: ${missing})`}`,
  () => {
    let server: RunningEmbedServer;
    const key = "a-key-that-nobody-else-has";

    beforeAll(async () => {
      const settings = readSettings({
        HOST: "127.0.0.1",
        MODEL_PATH: await tinyModel(),
        LOG_LEVEL: "silent",
        API_KEY: key,
      });
      server = await startEmbedServer({ ...settings, PORT: 0 });
      await server.loaded;
    });
    afterAll(() => server?.stop());

    test("every answer is one that the document promises", async () => {
      const { stdout, failed } = await schemathesis(
        ...["--max-examples", "200", "--phases", "examples,coverage,fuzzing"],
      );
      const [summary = ""] = /Test cases:.*/s.exec(stdout) ?? [];
      console.log(summary.trim());
      expect(failed ? stdout : "").toBe("");
      expect(stdout).toMatch(/Tested: 6/);
      // the rest of the requests would have found a dead server
      expect((await fetch(`http://127.0.0.1:${server.port}/readyz`)).status).toBe(200);
    });

    async function schemathesis(
      ...options: readonly string[]
    ): Promise<{ stdout: string; failed: boolean }> {
      const args = [
        ...["--config-file", config, "run", `http://127.0.0.1:${server.port}/openapi.json`],
        ...["--seed", "1", "--no-color", "--continue-on-failure", "--request-timeout", "30"],
        ...options,
      ];
      try {
        const program = join(venv, "bin", "schemathesis");
        const { stdout } = await promisify(execFile)(program, args, {
          maxBuffer: 64 * 1024 * 1024,
          timeout: 240_000,
          // it leaves notes of its own where it runs
          cwd: await mkdtemp(join(tmpdir(), "clipstack-schemathesis-")),
          env: { ...process.env, CLIPSTACK_TEST_KEY: key },
        });
        return { stdout, failed: false };
      } catch (error) {
        const { stdout = "", stderr = "" } = error as { stdout?: string; stderr?: string };
        return { stdout: `${stdout}${stderr}`, failed: true };
      }
    }
  },
);
