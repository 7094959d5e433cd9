/**
 * Tests of the documented commands. `docs.test.ts` fails if a command is in none of these lists and its page does not state what it
 * needs (`# needs a GPU`) in the comment after it or in the first line of its block.
 */

/** A command that `commands.integ.test.ts` runs verbatim in a fresh copy of the project. */
export interface RunCommand {
  readonly command: string;
  /** @default 0 */
  readonly exitCode?: number;
  /** Expected in the output. */
  readonly prints: RegExp;
}

/** Run in this order, because later commands read files of earlier ones. Files that pages assume (`photo.jpg`, `plan.json`) exist. */
export const commandsRun: readonly RunCommand[] = [
  {
    command: "npm run synth",
    prints:
      /k8s-gpu: .*\nkind-local: .*\nmarketplace: .*\nmulti-gpu-4x: .*\nsearch: .*\nsingle-gpu: /,
  },
  {
    command: "npx clipstack k8s manifests kind-local --image clipstack/embed:k8s-cpu",
    prints: /kind: Deployment/,
  },
  {
    command:
      "npx clipstack launch-spec marketplace --image registry.example/clipstack/all-in-one:0.1.0",
    prints: /8002 {2}embed embed-http, open[\s\S]*--publish 127\.0\.0\.1:8010:8010/,
  },
  { command: "npx clipstack model check", prints: /openclip_vit_b32/ },
  { command: "npx clipstack review --plan plan.json", prints: /^<!-- clipstack-review -->/ },
  {
    command:
      "npx clipstack review --plan cdktf.out/plan.json --head cdktf.out --output review.md --output review.json",
    prints: /^<!-- clipstack-review -->/,
  },
  {
    command: "npx clipstack review --plan cdktf.out/fresh.json --verify-plan review.json",
    prints: /matches the reviewed change/,
  },
  {
    command:
      "npx clipstack capacity --gpu a100-sxm4-80gb --gpus 8 --cores 96 --payload jpeg --bandwidth 10Gbps --concurrency 512",
    prints: /The host has 96 cores \(--cores\)/,
  },
  {
    command:
      "npx clipstack capacity multi-gpu-4x --payload fp32 --bandwidth 10Gbps --round-trip 0.2ms --connections kept --concurrency 64",
    prints: /4 × rtx-4080, instance-group[\s\S]*2,076/,
  },
  {
    command:
      "npx clipstack capacity --gpu rtx-4080 --payload fp32 --bandwidth 100Mbps --round-trip 35ms --concurrency 16",
    prints: /images\/s {8}20\.8[\s\S]*0\.027[\s\S]*send JPEG +186/,
  },
  {
    command:
      "npx clipstack capacity --images 1000000 --within 6h --bandwidth 200Mbps --round-trip 35ms",
    prints: /rtx-a4000 +- +jpeg +128 +1,376/,
  },
  { command: "npx clipstack report record.json --format md", prints: /^## Bench: / },
  {
    command: "npx clipstack compare before.json after.json --fail-over 5% --format md",
    prints: /onnx-http/,
  },
  { command: "npx clipstack-dedupe scan ~/Pictures", prints: /photos/ },
  { command: "npx clipstack-dedupe embed", prints: /photos embedded/ },
  { command: "npx clipstack-dedupe group", prints: /group/ },
  {
    command:
      "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=test-ca -keyout ca-key.pem -out ca.pem",
    prints: /^/,
  },
  {
    command:
      "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout tls.key -out request.pem",
    prints: /^/,
  },
  {
    command:
      "openssl x509 -req -in request.pem -CA ca.pem -CAkey ca-key.pem -CAcreateserial -days 30 -copy_extensions copy -out tls.crt",
    prints: /subject=CN ?= ?localhost/,
  },
];

/** A command that a test runs, possibly with other values, or whose code a test calls. */
export interface TestedCommand {
  /** First words of the command. The longest matching entry applies. */
  readonly command: string;
  /** Test files that contain the words and every documented option. */
  readonly tests: readonly string[];
  /** @default - the words of the command without `npx` and the program name */
  readonly words?: readonly string[];
}

const deploymentTests = ["tests/deploy/single-gpu.integ.test.ts", "tests/deploy/test-project.ts"];
const multiGpuTests = ["tests/deploy/multi-gpu.integ.test.ts", "tests/deploy/test-project.ts"];
const kindTests = [
  "tests/deploy/kind-local.integ.test.ts",
  "tests/deploy/test-project.ts",
  "tests/deploy/test-kind-project.ts",
];
const clusterTests = ["tests/deploy/k8s-gpu.integ.test.ts", "tests/deploy/test-project.ts"];
const benchTests = [
  "cli/commands/bench.test.ts",
  "cli/commands/bench.integ.test.ts",
  "cli/prepare/bench-options.test.ts",
];
const reviewTests = [
  "cli/commands/review.test.ts",
  "tools/review-base.integ.test.ts",
  "tests/review-action.integ.test.ts",
];
const benchServerTests = ["lab/rounds/comparison.test.ts", "lab/server/server.integ.test.ts"];
const benchGatewayTests = ["lab/rounds/comparison.test.ts", "lab/gateway/gateway.integ.test.ts"];
const sweepTests = ["cli/commands/sweep.test.ts", "cli/prepare/bench-options.test.ts"];
const launchTests = ["cli/launch/launch-spec.test.ts", "cli/commands/launch-spec.integ.test.ts"];
const dedupeTests = ["examples/photo-dedupe/main.test.ts", "examples/photo-dedupe/embed.test.ts"];
const chartTests = ["tests/deploy/chart.integ.test.ts", "tests/chart/test-helm.ts"];
const ownStackTests = ["tests/examples-own-stack.integ.test.ts"];
const imageTests = ["tests/deploy/images.integ.test.ts"];

/** The test runs every block of the guide. */
const kubectlCommands = ["-n clipstack", "kustomize", "apply --server-side --force-conflicts"];

export const commandsTested: readonly TestedCommand[] = [
  ...kubectlCommands.map((words) => ({
    command: `kubectl ${words}`,
    tests: ["tests/deploy/kind-local.integ.test.ts"],
    words: ["kubernetes-practice.md"],
  })),
  {
    command: "npx clipstack model check efficientnet-lite1",
    tests: ["tests/own-model.integ.test.ts"],
    words: ["model", "check"],
  },
  // packages in a separate project
  { command: "npm run build", tests: ownStackTests, words: ["build"] },
  { command: "npm pack", tests: ownStackTests, words: ["pack"] },
  { command: "npm install", tests: ownStackTests, words: ["install"] },
  {
    command: "npx clipstack synth",
    tests: ["tests/packed-project.integ.test.ts"],
    words: ["clipstack", "synth"],
  },
  { command: "npx tsx embed.ts", tests: ownStackTests, words: ["embed.ts"] },
  // deployments to a Docker engine or a kind cluster, on the CPU
  { command: "npx cdktf synth", tests: [".ci/run"], words: ["npx cdktf synth"] },
  { command: "npx cdktf diff", tests: deploymentTests, words: ["plan("] },
  { command: "npx cdktf deploy single-gpu", tests: deploymentTests },
  { command: "npx cdktf destroy single-gpu", tests: deploymentTests },
  { command: "npx cdktf deploy multi-gpu-4x", tests: multiGpuTests },
  { command: "npx cdktf destroy multi-gpu-4x", tests: multiGpuTests },
  { command: "npx cdktf deploy kind-local", tests: kindTests },
  { command: "npx cdktf destroy kind-local", tests: kindTests },
  { command: "npx cdktf deploy k8s-gpu", tests: clusterTests },
  { command: "npx cdktf destroy k8s-gpu", tests: clusterTests },
  {
    command: "terraform",
    tests: ["tests/deploy/test-project.ts"],
    words: ["-out", "show", "-json"],
  },
  { command: "npx clipstack verify single-gpu --target deployed", tests: deploymentTests },
  { command: "npx clipstack verify multi-gpu-4x --target deployed", tests: multiGpuTests },
  { command: "npx clipstack verify kind-local --target deployed", tests: kindTests },
  { command: "npx clipstack verify k8s-gpu --target deployed", tests: clusterTests },
  { command: "npx clipstack drill multi-gpu-4x kill", tests: multiGpuTests, words: ["drill"] },
  { command: "npx clipstack drill multi-gpu-4x freeze", tests: multiGpuTests, words: ["freeze"] },
  { command: "npx clipstack k8s rollout", tests: kindTests },
  { command: "npx clipstack k8s scale", tests: kindTests },
  { command: "npx clipstack k8s drain", tests: kindTests },
  { command: "npx clipstack k8s quota", tests: kindTests },
  { command: "npx clipstack k8s manifests", tests: kindTests },
  { command: "npx clipstack init", tests: ["cli/commands/init.test.ts"] },
  { command: "npx clipstack doctor", tests: ["cli/commands/doctor.test.ts"] },
  { command: "npx clipstack wait-healthy", tests: ["cli/commands/wait-healthy.integ.test.ts"] },
  {
    command: "npx clipstack wait-rollout",
    tests: [
      "cli/commands/wait-rollout.test.ts",
      "constructs/kubernetes/inference-deployment.test.ts",
    ],
  },
  { command: "npx clipstack tunnel", tests: ["cli/commands/tunnel.integ.test.ts"] },
  { command: "npx clipstack launch-spec", tests: launchTests },
  // the command line
  { command: "npm start", tests: [".ci/run"], words: ["npm start"] },
  { command: "npx tsx stacks/main.ts", tests: ["stacks/main.test.ts"], words: ["main.ts"] },
  {
    command: "npm run docs:build",
    tests: ["docs/site.integ.test.ts"],
    words: ["docs:build"],
  },
  { command: "npm run render", tests: ["tools/render.test.ts"], words: ["render("] },
  { command: "npm run review", tests: reviewTests, words: ["review-base", "--base"] },
  {
    command: "npm run demo:dedupe",
    tests: ["lab/dedupe/demo.integ.test.ts"],
    words: ["dedupe"],
  },
  { command: "npm run lab -- server", tests: benchServerTests, words: [] },
  { command: "npm run lab -- gateway", tests: benchGatewayTests, words: [] },
  {
    command: "npm run lab -- calibrate",
    tests: ["lab/capacity/check.test.ts"],
    words: ["calibrate", "parameters", "cross-validate"],
  },
  { command: "npx clipstack verify", tests: ["cli/commands/verify.test.ts"] },
  { command: "npx clipstack bench", tests: benchTests },
  { command: "npx clipstack sweep", tests: sweepTests },
  { command: "npx clipstack compare", tests: ["cli/commands/report.test.ts"] },
  {
    command: "npx clipstack report",
    tests: ["cli/commands/report.test.ts", "cli/prepare/report-history.test.ts"],
  },
  { command: "npx clipstack capacity", tests: ["cli/commands/capacity.test.ts"] },
  { command: "openssl genpkey", tests: reviewTests, words: ["genpkey"] },
  { command: "openssl pkey", tests: reviewTests, words: ["pkey"] },
  { command: "npx clipstack review", tests: reviewTests },
  { command: "npx clipstack serve", tests: ["cli/commands/serve.test.ts"] },
  { command: "npx clipstack model deploy", tests: ["cli/model/model-deploy.test.ts"] },
  {
    command: "npx clipstack model repository",
    tests: ["cli/model/model-repository.test.ts"],
  },
  { command: "npx clipstack model generate", tests: ["cli/commands/model.test.ts"] },
  {
    command: "npx clipstack model export",
    tests: ["cli/model/model-export.test.ts", "cli/model/model-export.integ.test.ts"],
  },
  {
    command: "npx clipstack model import",
    tests: ["cli/model/model-import.integ.test.ts"],
    words: ["import"],
  },
  { command: "npx clipstack model optimise", tests: ["cli/commands/model.test.ts"] },
  {
    command: "npx clipstack model convert",
    tests: ["cli/model/model-prepare.integ.test.ts"],
    words: ["convert"],
  },
  ...["build", "serve", "near-duplicates"].map((name) => ({
    command: `npx clipstack-search ${name}`,
    tests: ["examples/search/search.integ.test.ts"],
  })),
  { command: "npx clipstack-dedupe scan", tests: dedupeTests },
  { command: "npx clipstack-dedupe embed", tests: dedupeTests },
  { command: "npx clipstack-dedupe review", tests: dedupeTests },
  { command: "npx clipstack-dedupe search", tests: ["examples/photo-dedupe/search.test.ts"] },
  // programs that call the servers
  {
    command: "curl -F",
    tests: ["inference-image/server/app.test.ts"],
    words: ['"/embed"', "form("],
  },
  {
    command: "curl --data-binary",
    tests: ["inference-image/server/app.test.ts"],
    words: ['"/embed"', '"image/jpeg"'],
  },
  {
    command: "curl --cacert",
    tests: ["inference-image/server/embed-server.test.ts"],
    words: ["serves only HTTPS"],
  },
  {
    command: "curl -H",
    tests: ["cli/commands/serve.test.ts"],
    words: ["/embed/text", '"application/json"'],
  },
  {
    command: "curl --fail-with-body",
    tests: ["tests/clients.integ.test.ts"],
    words: ['sampleOf("sh", "--retry")'],
  },
  // images and the chart
  { command: "docker buildx bake", tests: imageTests, words: ["bake"] },
  {
    command: "docker build --file inference-image/Dockerfile",
    tests: imageTests,
    words: ["build", "inference-image/Dockerfile"],
  },
  { command: "docker run --read-only", tests: imageTests, words: ["read-only root"] },
  { command: "helm install", tests: chartTests, words: ["install"] },
  { command: "helm upgrade", tests: chartTests, words: ["upgrade"] },
  { command: "helm test", tests: chartTests, words: ['"test"'] },
  { command: "kubectl apply --server-side", tests: kindTests, words: ["apply --server-side"] },
  // test commands
  {
    command: "npm run lab -- acceptance",
    tests: ["lab/gpu/acceptance.integ.test.ts"],
    words: ["acceptance.ts"],
  },
  { command: "npx vitest run", tests: [".ci/run"], words: ["npx vitest run --project"] },
  { command: ".ci/run", tests: [".ci/run"], words: ["suite unit"] },
];
