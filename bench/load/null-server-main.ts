/** A null server in a process of its own: `tsx null-server-main.ts http|grpc [delay in ms]`. Prints its address. */
import { startNullGrpcServer, startNullHttpServer } from "./null-server.ts";

const [kind = "http", delayMs = "0"] = process.argv.slice(2);
const start = kind === "grpc" ? startNullGrpcServer : startNullHttpServer;
const server = await start({ delayMs: Number(delayMs) });
console.log(server.url);
