import { defineConfig } from "vitest/config";

const exclude = ["**/node_modules/**", "cdktf.out/**"];

export default defineConfig({
  test: {
    globalSetup: "./stacks/test-temporary-folder.ts",
    projects: [
      {
        test: {
          name: "unit",
          include: ["**/*.test.ts"],
          exclude: [...exclude, "**/*.integ.test.ts"],
          testTimeout: 30_000,
          hookTimeout: 60_000,
        },
      },
      {
        test: {
          name: "integ",
          include: ["**/*.integ.test.ts"],
          exclude,
          testTimeout: 300_000,
          hookTimeout: 300_000,
          fileParallelism: false,
        },
      },
    ],
  },
});
