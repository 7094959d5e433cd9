import { expect, test } from "vitest";
import { commandLine } from "./command-line.ts";

test("a command line is recorded as it was given", () => {
  const args = ["bench", "single-gpu", "--concurrency", "1,4", "--url", "onnx-http=http://h:8010"];
  expect(commandLine(args)).toEqual(args);
});

test("credentials and query parameters of addresses are masked", () => {
  const args = [
    "--url",
    "embed-http=http://user:p%40ss@host:8002/?token=abc&x=1",
    "--url=onnx-http=https://key@host",
    "onnx-grpc=user:pass@host:8001",
    "--metrics-url",
    "embed=http://a:b@c@host:8003",
  ];
  expect(commandLine(args)).toEqual([
    "--url",
    "embed-http=http://***@host:8002/?token=***&x=***",
    "--url=onnx-http=https://***@host",
    "onnx-grpc=***@host:8001",
    "--metrics-url",
    "embed=http://***@host:8003",
  ]);
});
