import { existsSync } from "node:fs";
import { FaultyEndpoint } from "../../bulk/test-faulty-endpoint.ts";

/** Proxy beside the S3 server, which rejects nine of ten requests while the file /tmp/throttle exists. */
const endpoint = new FaultyEndpoint(7070);
endpoint.reject = () =>
  existsSync("/tmp/throttle") && Math.random() < 0.9
    ? { status: 503, code: "SlowDown" }
    : undefined;
await endpoint.listen(7071, "0.0.0.0");
setInterval(() => console.log(endpoint.rejections), 5_000);
