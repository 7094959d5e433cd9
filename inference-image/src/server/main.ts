/**
 * The process in the container. Without arguments it is the embed server, with settings from the environment;
 * `tritonserver …` is the server that stands where a Triton will stand, with Triton's options.
 */
const [role, ...args] = process.argv.slice(2);
switch (role) {
  case undefined: {
    const { runEmbedServer } = await import("./embed-server.ts");
    await runEmbedServer(process.env);
    break;
  }
  case "tritonserver": {
    const { runTritonServer } = await import("./triton-server.ts");
    await runTritonServer(args);
    break;
  }
  default:
    process.stderr.write(`expected no argument, or tritonserver and its options, got '${role}'\n`);
    process.exit(2);
}
