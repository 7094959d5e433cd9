import { clientErrors } from "../client/embedding/client-error.ts";
import { tritonErrors } from "../client/triton/transport.ts";
import { embedErrors } from "../contract/embed-api.ts";
import { defaultModel } from "../contract/models/index.ts";
import { openApiDocument } from "../inference-image/server/openapi.ts";
import { type JsonSchema, schemaTable } from "../stacks/settings/settings-docs.ts";
import type { RenderedFile } from "./rendered-file.ts";

interface Body {
  readonly description?: string;
  readonly content?: Readonly<Record<string, { readonly schema?: { readonly $ref?: string } }>>;
}

interface Operation {
  readonly summary: string;
  readonly security?: unknown;
  readonly parameters?: readonly { name: string; in: string; description?: string }[];
  readonly requestBody?: Body;
  readonly responses: Readonly<Record<string, Body>>;
}

interface Document {
  readonly paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  readonly components: { readonly schemas: Readonly<Record<string, JsonSchema>> };
}

/** The API of the embed server as an OpenAPI document and as a page, and the catalogue of errors. */
export function apiDocs(): readonly RenderedFile[] {
  const document = openApiDocument({ requiresKey: true, models: [defaultModel.name] });
  return [
    { path: "docs/openapi.json", text: `${JSON.stringify(document)}\n` },
    { path: "docs/api.md", text: apiPage(document as unknown as Document) },
    { path: "docs/errors.md", text: errorsPage() },
  ];
}

function apiPage({ paths, components }: Document): string {
  return `# API reference

Rendered by \`npm run render\` from the schemas that validate requests. The same as an OpenAPI 3.1 document: [openapi.json](openapi.json); a server
returns that of its models at \`/openapi.json\`. Explanations: [the embed server](embed-server.md), [OpenAI's routes](openai-api.md),
[samples](guides/clients.md), [errors](errors.md).

${Object.entries(paths)
  .flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, it]) =>
      operationText(`${method.toUpperCase()} ${path}`, it),
    ),
  )
  .join("\n")}
${Object.entries(components.schemas)
  .map(([name, schema]) => `## ${name}\n\n${schemaTable("field", schema).join("\n")}\n`)
  .join("\n")}`;
}

function operationText(title: string, operation: Operation): string {
  const { summary, security, parameters = [], requestBody, responses } = operation;
  const isError = (body: Body) => /Error\]/.test(contentOf(body));
  const failures = Object.keys(responses).filter((status) => isError(responses[status]!));
  return `## ${title}

${summary}.${security === undefined ? "" : " Requires the key of the server, if it has one."}

${table(
  ["", "in, or body", ""],
  [
    ...parameters.map(({ name, in: at, description = "" }) => [`\`${name}\``, at, description]),
    ...(requestBody === undefined ? [] : [["request", contentOf(requestBody), ""]]),
    ...Object.entries(responses)
      .filter(([, body]) => !isError(body))
      .map(([status, body]) => [status, contentOf(body), body.description ?? ""]),
    ...(failures.length === 0 ? [] : [[failures.join(", "), "[error](errors.md)", ""]]),
  ],
)}
`;
}

/** Media types of a body, each with a link to its schema. */
function contentOf({ content = {} }: Body): string {
  return Object.entries(content)
    .map(([type, { schema }]) => {
      const name = schema?.$ref?.replace(/.*\//, "");
      return name === undefined ? `\`${type}\`` : `[${name}](#${name.toLowerCase()})`;
    })
    .join(", ");
}

function errorsPage(): string {
  const codes = (errors: Readonly<Record<string, string>>) =>
    table(
      ["code", "meaning and next step"],
      Object.entries(errors).map(([code, text]) => [`\`${code}\``, text]),
    );
  return `# Errors

Rendered by \`npm run render\` from the lists of the code. Messages, with their remedies: [troubleshooting](troubleshooting.md).

## The embed server

Every error is \`{"error":{"code","message","image"}}\`; \`image\` or \`text\` is the index of the item at fault. Responses with \`Retry-After\` (seconds) may be
repeated, and no others. Routes under \`/v1/\` return the same in [OpenAI's format](openai-api.md#errors).

${table(
  ["code", "status", "meaning", "next step"],
  Object.entries(embedErrors).map(([code, { status, meaning, next }]) => [
    `\`${code}\``,
    String(status),
    meaning,
    next,
  ]),
)}

## The command line

| exit code | meaning | next step |
| --- | --- | --- |
| 0 | success | - |
| 1 | a check failed, or a deployment or measurement did not succeed | the output names the check; [troubleshooting](troubleshooting.md) |
| 2 | usage or settings error, before anything was changed | the message names the setting, the rule and the value; [settings](settings.md), \`--help\` |

\`CLIPSTACK_DEBUG=1\` prints the stack of an error instead of one line.

## \`ClientError\` of \`@clipstack/client\`

${codes(clientErrors)}

## \`TritonError\` of its transports

${codes(tritonErrors)}

## Triton

Triton's own errors have a text and a status of HTTP or gRPC: [troubleshooting](troubleshooting.md#triton).
`;
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): string {
  const line = (cells: readonly string[]) => `| ${cells.join(" | ")} |`;
  return [line(head), line(head.map(() => "---")), ...rows.map(line)].join("\n");
}
