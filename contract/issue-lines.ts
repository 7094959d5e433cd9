import { z } from "zod";

type Issue = z.core.$ZodIssue;
type Path = readonly PropertyKey[];

/** Error messages of a validation, one line each: path, rule and value. */
export function issueLines(
  issues: readonly Issue[],
  schema: z.ZodType,
  input: unknown,
): readonly string[] {
  return issues.flatMap((issue) => linesOf(issue, schema, input));
}

function linesOf(issue: Issue, schema: z.ZodType, input: unknown): readonly string[] {
  if (issue.code === "invalid_union" && issue.errors.length > 0) {
    const at = (issues: readonly Issue[]) =>
      issues.map((inner) => ({ ...inner, path: [...issue.path, ...inner.path] }) as Issue);
    return issueLines(at(matchingIssues(issue.errors, valueAt(input, issue.path))), schema, input);
  }
  // a rule of the schema about these keys
  if (issue.code === "unrecognized_keys" && issue.message.startsWith("must")) {
    return [`${dotted(issue.path) || "the file"} ${issue.message}`];
  }
  if (issue.code === "unrecognized_keys") {
    const known = keysAt(schema, issue.path, input);
    return issue.keys.map((key) => {
      const variable = credentialVariable(key);
      if (variable !== undefined) {
        return `${dotted([...issue.path, key])} must not be in the settings: Terraform reads it from the environment (${variable})`;
      }
      const near = nearest(key, known);
      const meant = near === undefined ? pathBelow(schema, key) : [...issue.path, near];
      const hint =
        meant === undefined ? `known: ${known.join(", ")}` : `did you mean '${dotted(meant)}'?`;
      return `unknown key '${dotted([...issue.path, key])}' (${hint})`;
    });
  }
  const value = valueAt(input, issue.path);
  const where = dotted(issue.path);
  if (value === undefined) return [`${where} is required`];
  const near = issue.code === "invalid_value" ? nearestOf(value, issue.values.map(String)) : "";
  return [`${where || "the file"} ${rule(issue)}, got ${renderValue(value)}${near}`];
}

/** Issues of the union member that matches the type of the value. */
function matchingIssues(choices: readonly (readonly Issue[])[], value: unknown): readonly Issue[] {
  const isOtherType = (issues: readonly Issue[]) =>
    issues.some(
      ({ code, path, ...issue }) =>
        path.length === 0 &&
        ((code === "invalid_type" && "expected" in issue && !isA(issue, value)) ||
          (code === "invalid_value" && typeof value === "object" && value !== null)),
    );
  return choices.find((issues) => !isOtherType(issues)) ?? choices[0] ?? [];
}

function isA({ expected }: { readonly expected: unknown }, value: unknown): boolean {
  if (expected === "object") return typeof value === "object" && value !== null;
  return expected === "int" ? typeof value === "number" : typeof value === expected;
}

/** Environment variable from which Terraform reads a credential of the state; undefined if `key` is not a credential. */
function credentialVariable(key: string): string | undefined {
  const name = key.replaceAll(/[_-]/g, "").toLowerCase();
  return Object.hasOwn(credentialVariables, name) ? credentialVariables[name] : undefined;
}

const credentialVariables: Readonly<Record<string, string>> = {
  accesskey: "AWS_ACCESS_KEY_ID",
  accesskeyid: "AWS_ACCESS_KEY_ID",
  secretkey: "AWS_SECRET_ACCESS_KEY",
  secretaccesskey: "AWS_SECRET_ACCESS_KEY",
  token: "AWS_SESSION_TOKEN",
  sessiontoken: "AWS_SESSION_TOKEN",
  ssecustomerkey: "AWS_SSE_CUSTOMER_KEY",
  credentials: "GOOGLE_APPLICATION_CREDENTIALS",
  accesstoken: "GOOGLE_OAUTH_ACCESS_TOKEN",
  encryptionkey: "GOOGLE_ENCRYPTION_KEY",
  username: "TF_HTTP_USERNAME",
  password: "TF_HTTP_PASSWORD",
  clientprivatekeypem: "TF_HTTP_CLIENT_PRIVATE_KEY_PEM",
};

/** Rule that a value breaks, without the value: `must be a number`. */
export function rule(issue: Issue): string {
  if (issue.message.startsWith("must ")) return issue.message;
  switch (issue.code) {
    case "invalid_type":
      return `must be ${typeNames[issue.expected] ?? issue.expected}`;
    case "invalid_value":
      return `must be one of ${issue.values.map(String).join(", ")}`;
    case "too_big":
      return `must ${bound(issue.origin, issue.inclusive === false ? "less than" : "at most", issue.maximum)}`;
    case "too_small":
      return `must ${bound(issue.origin, issue.inclusive === false ? "more than" : "at least", issue.minimum)}`;
    default:
      return `is not valid (${issue.message})`;
  }
}

/** Returns a limit of a number, or of the length of a text or list: `be at most 1`, `have at least 3 characters`. */
function bound(origin: string, comparison: string, limit: number | bigint): string {
  if (origin === "string") return `have ${comparison} ${limit} characters`;
  return ["array", "set"].includes(origin)
    ? `have ${comparison} ${limit} elements`
    : `be ${comparison} ${limit}`;
}

const typeNames: Readonly<Record<string, string>> = {
  object: "a map of settings",
  array: "a list",
  string: "text",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
};

/** Value at a path of own keys; undefined if it does not exist. */
export function valueAt(input: unknown, path: Path): unknown {
  return path.reduce<unknown>((inner, key) => {
    if (Array.isArray(inner)) return inner[Number(key)];
    const isMap = typeof inner === "object" && inner !== null && Object.hasOwn(inner, key);
    return isMap ? (inner as Record<PropertyKey, unknown>)[key] : undefined;
  }, input);
}

/** `host.gpu`, `tritonOnnx.gpus.3`. */
function dotted(path: Path): string {
  return path.map(String).join(".");
}

/** Value on one line, for messages. A password or query in a URL is masked. */
export function renderValue(value: unknown): string {
  const json = (JSON.stringify(value) ?? "nothing")
    .replace(/(:\/\/[^\s/@:]*:).*@/, "$1…@")
    .replace(/(:\/\/[^\s"?]*\?)[^\s"]*/, "$1…");
  return typeof value === "string" ? `'${json.slice(1, -1).replaceAll('\\"', '"')}'` : json;
}

/** Keys of the schema's object at a path. */
function keysAt(schema: z.ZodType, path: Path, input: unknown): readonly string[] {
  const at = path.reduce<unknown>((outer, key, index) => {
    const inner = unwrap(outer, valueAt(input, path.slice(0, index)));
    if (inner instanceof z.ZodObject) {
      return Object.hasOwn(inner.shape, key) ? inner.shape[String(key)] : undefined;
    }
    return inner instanceof z.ZodArray ? inner.element : undefined;
  }, schema);
  const object = unwrap(at, valueAt(input, path));
  return object instanceof z.ZodObject ? Object.keys(object.shape) : [];
}

/** Path of the only key of this name in an object that the schema contains directly; undefined if there is none or several. */
function pathBelow(schema: z.ZodType, key: string): Path | undefined {
  const root = unwrap(schema, undefined);
  if (!(root instanceof z.ZodObject)) return undefined;
  const found = Object.entries(root.shape).filter(([, inner]) => {
    const object = unwrap(inner, undefined);
    return object instanceof z.ZodObject && Object.hasOwn(object.shape, key);
  });
  const [[outer] = [], ...others] = found;
  return outer === undefined || others.length > 0 ? undefined : [outer, key];
}

/** Schema without its default, optional and transform wrappers; for a union, the member closest to `value`. */
function unwrap(schema: unknown, value: unknown): unknown {
  if (
    schema instanceof z.ZodDefault ||
    schema instanceof z.ZodPrefault ||
    schema instanceof z.ZodOptional
  ) {
    return unwrap(schema.unwrap(), value);
  }
  if (schema instanceof z.ZodPipe) return unwrap(schema.in, value);
  if (!(schema instanceof z.ZodUnion)) return schema;
  const choices = schema.options.map((option) => unwrap(option, value));
  const objects = choices.filter((choice) => choice instanceof z.ZodObject);
  const fits = (choice: z.ZodObject) =>
    Object.entries(choice.shape).every(
      ([key, inner]) =>
        !(inner instanceof z.ZodLiteral) || inner.safeParse(valueAt(value, [key])).success,
    );
  return objects.find(fits) ?? objects[0];
}

/** ` (did you mean 'l4'?)`; empty if no candidate is near. */
export function nearestOf(value: unknown, candidates: readonly string[]): string {
  const near = typeof value === "string" ? nearest(value, candidates) : undefined;
  return near === undefined ? "" : ` (did you mean '${near}'?)`;
}

/** Candidate with the smallest edit distance to `word`, if that is at most a third of its length; otherwise the only one that contains the word. */
export function nearest(word: string, candidates: readonly string[]): string | undefined {
  const best = candidates
    .map((candidate) => ({ candidate, distance: editDistance(word, candidate) }))
    .sort((a, b) => a.distance - b.distance)[0];
  if (best !== undefined && best.distance <= Math.max(1, Math.floor(word.length / 3))) {
    return best.candidate;
  }
  const parts = word.toLowerCase().split(/[^a-z0-9]+/);
  const containing = candidates.filter((candidate) =>
    parts.every((part) => candidate.toLowerCase().includes(part)),
  );
  return containing.length === 1 ? containing[0] : undefined;
}

/** Case-insensitive edit distance with transpositions (optimal string alignment). */
function editDistance(from: string, to: string): number {
  const a = from.toLowerCase();
  const b = to.toLowerCase();
  const rows = [Array.from({ length: b.length + 1 }, (_, index) => index)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    const above = rows[i - 1]!;
    for (let j = 1; j <= b.length; j++) {
      const replace = above[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      const swapped = i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1];
      const swap = swapped ? rows[i - 2]![j - 2]! + 1 : Number.POSITIVE_INFINITY;
      row.push(Math.min(replace, above[j]! + 1, row[j - 1]! + 1, swap));
    }
    rows.push(row);
  }
  return rows[a.length]![b.length]!;
}
