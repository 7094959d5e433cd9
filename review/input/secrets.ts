import { serverEnv } from "../../contract/server-env.ts";
import type { Path, StackChange, Values } from "./change.ts";
import { blocksOf, isObject, isWithin, textsIn, valueAt, visitTexts } from "./value-paths.ts";

/**
 * What is not printed: what Terraform marks as sensitive, what has the name or the form of a secret, and texts of which nobody
 * can say that they are none, as the values of a chart. What a text is of is said in its place.
 */

/** Replacement for a hidden value. */
export const hidden = "(not shown)";

const secretWords =
  /(^|[^a-z])(pass(word|wd|phrase)?|pwd|secrets?|tokens?|jwt|credentials?|api[^a-z]?keys?|(access|private|secret|signing|encryption|account|auth|license|ssh|deploy|master|shared|client)[^a-z]?keys?|keys?|bearer|authorization|auths?|cookie|session|dsn|salt|pin|otp|cert(ificate)?[^a-z]?data|kubeconfig[^a-z]?raw|connection[^a-z]?string|webhook[^a-z]?url|(slack|discord|teams|mattermost|chat|alert)[^a-z]?webhooks?)($|[^a-z])/;

/** Names that end in one of the words without a border before it: `PGPASSWORD`, `githubtoken`, `rootpw`. */
const secretEndings =
  /((password|passwd|apikey|secret|token)|(root|admin|user|db|pg|my|sql|redis|mongo|smtp|imap|ftp|http|ldap|proxy|registry|docker|git|htp?|auth)(pass|pwd|pw)|(ngc|nvidia|openai|hf|aws|gcp|azure|ssh|gpg|pgp)key)$/;

/** Names with one of the words that are none. */
const harmlessNames =
  /^(allow_anonymous|key|(public|sort|partition|topology|primary|foreign)_?keys?|.*_(file|path|dir|secret_name|key_name)|secret_?name|key_?secret|.*\.(secretname|keysecret)|.*secret_?key_?ref.*|author(ity|s)?|tls_(cert|key)_file|tokeni[sz].*|(.*_)?(max|min|num|number|total)_(.*_)?tokens?|(.*_)?(pad|eos|bos|unk|mask|sep|cls|stop|special)_?tokens?(_ids?)?|.*_(timeout|ttl|lifetime|expiry|interval|seconds|minutes|hours|days|limit|count|length|size|parallelism|enabled))$/;

/** Whether what has this name is a secret: `API_KEY`, `registryPassword`, `auth.token`. */
export function isSecretName(name: string): boolean {
  const before = verdicts.get(name);
  if (before !== undefined) return before;
  const verdict = hasSecretWord(name);
  if (verdicts.size < maxVerdicts) verdicts.set(name, verdict);
  return verdict;
}

/** Attributes have the same few names in thousands of resources. */
const verdicts = new Map<string, boolean>();
const maxVerdicts = 10_000;

function hasSecretWord(name: string): boolean {
  const words = wordsOf(name);
  return (secretWords.test(words) || secretEndings.test(words)) && !harmlessNames.test(words);
}

function wordsOf(name: string): string {
  return name
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1_$2")
    .toLowerCase()
    .replaceAll("-", "_");
}

/**
 * Whether a value under the name of a secret can be one: no switch, and what is short or a number only where a password is asked
 * for. `SESSION_MAX=30` and `CACHE_KEY=v1` are settings, `DB_PASSWORD=1234` is a password.
 */
export function canBeSecret(name: string, value: string): boolean {
  if (value === "" || /^(true|false|on|off|yes|no|none|null)$/i.test(value)) return false;
  const words = wordsOf(name);
  if (/(pass(word|wd|phrase)?|pwd|pw|secret)$/.test(words)) return true;
  return value.length >= 6 && (!/^-?[\d.]+$/.test(value) || /key$/.test(words));
}

type SecretTest = (text: string) => boolean;

/**
 * A form, and what a text must have somewhere for it to be worth a look: long texts are looked at by the thousand. What comes
 * before the end of a form is bounded, or cannot begin in its own middle: a text of hundreds of kilobytes is read in one go.
 */
const secretPatterns: readonly { readonly hint: RegExp; readonly form: RegExp | SecretTest }[] = [
  // a URL with a password: scheme://user:password@host
  { hint: /:\/\//, form: /[a-z0-9]:\/\/[^/\s:@]{0,256}:[^/\s@]+@/i },
  { hint: /-----BEGIN/, form: /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----/ },
  // base64 of `{"…`: a JSON Web Token, or the logins of registries
  { hint: /eyJ/, form: /eyJ[\w+/-]{16}/ },
  { hint: /A[KS]IA/, form: /\b(AKIA|ASIA)[0-9A-Z]{16}\b/ },
  {
    hint: /[_-]/,
    form: /\b(gh[pousr]_|github_pat_|gl(pat|rt|dt|ptt|cbt|agent)-|xox[abprs]-|sk-|[sr]k_(live|test)_|hf_|npm_|pypi-|dckr_pat_|nvapi-|AGE-SECRET-KEY-1)[\w-]{10}/,
  },
  // Google, SendGrid, Vault
  { hint: /AIza|SG\.|hv[sb]\./, form: /\b(AIza[\w-]{20}|SG\.[\w-]{10}|hv[sb]\.[\w-]{10})/ },
  // who knows the address may write there
  {
    hint: /hooks?[./]/i,
    form: /hooks\.slack\.com\/(services|workflows|triggers)\/\w|discord(app)?\.com\/api\/webhooks\/\w|webhook\.office\.com\/\w/i,
  },
  // Azure and AWS: connection strings, and addresses that are signed
  { hint: /Key=|sig/i, form: /\b(AccountKey|SharedAccessKey|SharedSecretKey)=[^\s;$]/i },
  { hint: /sig/i, form: /[?&](sig|X-Amz-Signature)=[\w%+/-]{8}/i },
  { hint: /pass|pwd/i, form: /(^|[^a-z])(pass|pwd)=[^\s,;$]/i },
  { hint: /bearer|basic/i, form: /\b(bearer|basic)\s{1,8}[\w.~+/-]{8}/i },
  // an option or a variable of a command line: --password=…, API_KEY=…
  { hint: /passw|secret|token|api[-_]?key/i, form: hasSecretSetting },
  // user:password@host without a scheme; `image:tag@sha256:…` is none
  { hint: /:[^\s/@]+@/, form: /(^|[\s"'=])[\w.-]{1,64}:[^\s/@]{1,256}@(?!sha256:)[\w.-]/ },
  // curl -u user:password, redis-cli -a password
  { hint: /\s-u|\s--user/, form: /\s(-u|--user)[\s=]{0,4}[^\s:]{1,64}:[^\s]/ },
  { hint: /redis-cli/, form: /redis-cli\s([^|;&\n]{0,200}\s)?-a\s{0,4}\S/ },
  { hint: /requirepass|masterauth/, form: /(requirepass|masterauth)\s{1,8}\S/ },
  // hashes of passwords, as htpasswd and /etc/shadow have them
  { hint: /\$/, form: /\$(apr1|2[abxy]|[156y]|argon2(id|i|d)|scrypt)\$[\w./$=,+-]{4}/ },
  { hint: /\{/, form: /\{(S?SHA\d{0,3}|S?MD5|CRYPT)\}\S/i },
  // a field of JSON; `"existingSecret": "keys"` is a name
  { hint: /"\s{0,8}:/, form: /(password|passwd|token|api[-_]?key|auth)"\s{0,8}:\s{0,8}"[^"$]/i },
];

/** Whether a text looks like a secret, or has one in it. */
export function hasSecretPattern(text: string): boolean {
  return (
    text.length >= 8 &&
    secretPatterns.some(
      ({ hint, form }) =>
        hint.test(text) && (form instanceof RegExp ? form.test(text) : form(text)),
    )
  );
}

/** `--password=…`, `API_KEY: …`, and not `MAX_TOKENS=512`. */
function hasSecretSetting(text: string): boolean {
  const settings = text.matchAll(
    /(?:password|passwd|secret|token|api[-_]?key)[\w-]{0,64}\s{0,8}[=:]\s{0,8}([^\s$][^\s,;&|]{0,64})/gi,
  );
  for (const { index, 0: whole, 1: value = "" } of settings) {
    const [before] = /[\w.-]*$/.exec(text.slice(Math.max(0, index - 64), index)) ?? [""];
    const name = `${before}${whole.slice(0, whole.search(/\s{0,8}[=:]/))}`.replace(/^-+/, "");
    if (harmlessNames.test(wordsOf(name))) continue;
    if (canBeSecret(name, value.replace(/^["'](.*?)["']?$/, "$1"))) return true;
  }
  return false;
}

/** An expression of Terraform and nothing else: a name, not a value. */
const onlyExpression = /^\$\{[^}"]*\}$/;

/** What Kubernetes keeps secrets in, of typed resources and of manifests. */
const secretMaps = ["data", "binary_data", "data_wo", "string_data", "stringData"] as const;

/** Where this project knows that a resource has secrets. */
export function secretPaths(type: string, values: Values | undefined): readonly Path[] {
  if (values === undefined) return [];
  const found: Path[] = [];
  const add = (...path: Path) => {
    const value = valueAt(values, path);
    if (value !== undefined && value !== null && value !== "") found.push(path);
  };
  if (/^kubernetes_secret(_v1)?$/.test(type)) for (const key of secretMaps) add(key);
  if (type === "kubernetes_manifest" && blocksOf(values.manifest)[0]?.kind === "Secret") {
    for (const key of secretMaps) {
      add("manifest", key);
      add("object", key);
    }
  }
  if (type === "docker_secret" || type === "docker_config") {
    add("data");
    add("data_raw");
  }
  if (type === "helm_release") {
    // the merged values of a release, secrets of `set_sensitive` among them, are in `metadata`
    for (const key of ["set_sensitive", "set_wo", "metadata", "manifest", "resources"]) add(key);
    add("repository_password");
  }
  const known = [...found];
  // the texts of a release are parsed, and masked one by one, before they are shown
  visitTexts(values, (text, path, above) => {
    if (text === "" || onlyExpression.test(text)) return;
    const name = nameOfValue(above, path, text);
    if (!(name !== undefined && isSecretName(name)) && !hasSecretPattern(text)) return;
    if (!known.some((secret) => isWithin(path, secret))) found.push([...path]);
  });
  return found;
}

/** What a text is called: the key of its map, the name beside it, or what stands before its `=`. */
function nameOfValue(above: unknown, path: Path, text: string): string | undefined {
  const last = path.at(-1);
  if (typeof last === "number") {
    const list = path.at(-2);
    if (list === "env" || list === "environment") return /^([^=]*)=./s.exec(text)?.[1];
    // `--api-key`, `value`: two words of a command
    const previous = Array.isArray(above) ? above[last - 1] : undefined;
    if ((previous === "-u" || previous === "--user") && text.includes(":")) return "password";
    if (typeof previous === "string" && /^--?[\w-]+$/.test(previous)) return previous;
    return undefined;
  }
  if (last === "value" && isObject(above)) {
    const { name, label, key } = above;
    return [name, label, key].find((it): it is string => typeof it === "string");
  }
  // a key of a reference is the name of a key, and `key` of a toleration is that of a taint
  if (last === "key" || last === "name") return undefined;
  return last;
}

/** Values with {@link hidden} in every secret place. */
export function mask(values: Values, sensitive: readonly Path[]): Values {
  const walk = (value: unknown, paths: readonly Path[]): unknown => {
    if (paths.length === 0) return value;
    if (paths.some((path) => path.length === 0)) return hidden;
    const below = (step: string | number) =>
      paths.filter((path) => String(path[0]) === String(step)).map((path) => path.slice(1));
    if (Array.isArray(value)) return value.map((item, index) => walk(item, below(index)));
    if (!isObject(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, walk(item, below(key))]),
    );
  };
  const masked = walk(values, sensitive);
  return isObject(masked) ? masked : {};
}

/** Settings of the servers whose values are no secret, by name; of others only numbers and words of a switch are shown. */
const printableVariables = new Set([
  ...Object.keys(serverEnv.shape).filter((name) => name !== "API_KEY"),
  "NVIDIA_VISIBLE_DEVICES",
  "NVIDIA_DRIVER_CAPABILITIES",
  "CUDA_VISIBLE_DEVICES",
  "ORT_DISABLE_TELEMETRY",
  "NODE_ENV",
  "UV_THREADPOOL_SIZE",
]);

export function isKnownVariable(name: string): boolean {
  return printableVariables.has(name) || name === "API_KEY";
}

/** A value of an environment variable as a reader may see it. */
export function variableText(name: string, value: string, secret: boolean): string {
  if (secret || isSecretName(name) || hasSecretPattern(value)) return hidden;
  if (printableVariables.has(name)) return value;
  return /^(-?\d{1,9}(\.\d{1,6})?|true|false|on|off|yes|no)$/i.test(value) ? value : hidden;
}

/** Options of Triton whose values are names, addresses and words. */
const printableOptions = new Set([
  ...["model-repository", "model-config-name", "model-control-mode", "load-model"],
  ...["http-address", "grpc-address", "metrics-address", "metrics-config"],
]);

const printableValue =
  /^(-?\d{1,12}(\.\d{1,6})?(ms|[smhkKMGT]i?)?|true|false|on|off|yes|no|\/[\w./-]{0,200})$/;
const printablePrograms =
  /^(CMD|CMD-SHELL|NONE|tritonserver|serve|node|python3?|sh|bash|curl|wget|true)$/;
const loopbackUrl = /^https?:\/\/(127\.0\.0\.1|localhost)(:\d{1,5})?(\/[\w./-]{0,100})?$/;

/**
 * A word of a command line as a reader may see it: an option, a number, a switch, a path, an address of the machine itself,
 * and a program that is usual here. Nobody can say of another word that it is no password.
 */
export function commandWord(words: readonly unknown[], index: number): CommandWord {
  const text = String(words[index]);
  const [, dashes = "", name = "", , value] =
    /^(--?)([A-Za-z][\w-]{0,60})(=(.*))?$/s.exec(text) ?? [];
  if (name !== "" && value === undefined) return { option: text, value: undefined };
  if (name !== "" && value !== undefined) {
    const isShown =
      printableValue.test(value) || (dashes === "--" && isPrintableOption(name, value));
    return { option: `${dashes}${name}`, value: isShown ? value : hidden };
  }
  const before = words[index - 1];
  const isOptionValue =
    typeof before === "string" &&
    before.startsWith("--") &&
    isPrintableOption(before.slice(2), text);
  const isShown =
    printablePrograms.test(text) ||
    isOptionValue ||
    printableValue.test(text) ||
    loopbackUrl.test(text);
  return isShown ? { option: text, value: undefined } : { option: undefined, value: hidden };
}

/** `option` is absent where the word is not shown. */
export interface CommandWord {
  readonly option: string | undefined;
  readonly value: string | undefined;
}

function isPrintableOption(name: string, value: string): boolean {
  return (
    printableOptions.has(name) && /^[\w.:/,=*-]{1,100}$/.test(value) && !hasSecretPattern(value)
  );
}

/** Texts that no line may have: what stands in secret places, long enough to be no word. */
export function secretTexts(changes: readonly StackChange[]): readonly string[] {
  const found = new Set<string>();
  const add = (text: string) => {
    if (!isRevealing(text)) return;
    // as it is, as a line shows it, and as JSON in a text has it
    for (const form of [text, shortenedText(text), shortenedText(text).trim(), jsonText(text)]) {
      if (isRevealing(form)) found.add(form);
    }
  };
  const take = (value: unknown) => {
    for (const [path, text] of textsIn(value)) {
      const list = path.at(-2) ?? path.at(-1);
      const bare = typeof list === "string" && /^env/.test(list) ? text.replace(/^\w+=/, "") : text;
      for (const candidate of [bare, ...(/^\w+=/.test(text) ? [text.replace(/^\w+=/, "")] : [])]) {
        add(candidate);
      }
    }
  };
  for (const change of changes) {
    const { resources, drift, secrets = [] } = change;
    for (const text of secrets) add(text);
    for (const part of [change.configuration, change.configurationBefore]) {
      for (const text of configuredSecrets(part)) add(text);
    }
    for (const part of [change.environmentBefore, change.environmentAfter]) {
      for (const [, text] of textsIn(part)) for (const secret of passwordsOf(text)) add(secret);
    }
    for (const { type, sensitive, before, after } of [...resources, ...drift]) {
      for (const path of sensitive) {
        for (const values of [before, after]) {
          const value = valueAt(values, path);
          const isRelease = type === "helm_release" && path.length === 1 && path[0] === "metadata";
          take(isRelease ? blocksOf(value).map(withoutNames) : wrap(path, value));
        }
      }
    }
  }
  return [...found].sort((a, b) => b.length - a.length);
}

/** What Helm keeps of a release, without the names that stand beside it and everywhere. */
function withoutNames(metadata: Values): Values {
  const { name: _n, namespace: _s, chart: _c, version: _v, app_version: _a, ...rest } = metadata;
  return rest;
}

/** Secrets of providers, of a backend and of the defaults of variables, by their name and by their form. */
function* configuredSecrets(configuration: unknown): Generator<string> {
  for (const [path, text] of textsIn(configuration)) {
    // an expression is a name
    if (path.includes("references") || onlyExpression.test(text)) continue;
    const names = path.filter(
      (step) => typeof step === "string" && step !== "constant_value" && step !== "default",
    );
    const name = names.at(-1);
    if (typeof name === "string" && isSecretName(name)) yield text;
    else if (hasSecretPattern(text)) yield text;
    yield* passwordsOf(text);
  }
}

/** Passwords of the URLs in a text. */
function passwordsOf(text: string): readonly string[] {
  const found = [...text.matchAll(/:\/\/([^/\s:@]{0,256}):([^/\s@]+)@/g)];
  return found.flatMap(([, , password = ""]) => [password]);
}

/** A URL without the user and the password in it. */
export function withoutUser(url: string): string {
  return url.replace(/:\/\/[^/\s]*@/, "://");
}

/** A text on one line, long checksums without their end. */
export function shortenedText(text: string): string {
  return text
    .replaceAll(/\s+/g, " ")
    .replaceAll(/(?<![0-9a-f])([0-9a-f]{12})[0-9a-f]{52}(?![0-9a-f])/g, "$1…");
}

function jsonText(text: string): string {
  return JSON.stringify(text).slice(1, -1);
}

function wrap(path: Path, value: unknown): unknown {
  const last = path.filter((step) => typeof step === "string").at(-1);
  return last === undefined ? value : { [last]: value };
}

/** A number, a switch or a well-known setting is no secret by itself, wherever it stands. */
function isRevealing(text: string): boolean {
  return text.length >= 6 && text.length <= 4_096 && !/^(-?[\d.]+|true|false)$/.test(text);
}

/** A text without the secrets: the last guard, for what a rule or a message may have copied, or cut. */
export function scrub(text: string, secrets: readonly string[]): string {
  const whole = secrets.reduce(
    (clean, secret) => (clean.includes(secret) ? clean.replaceAll(secret, hidden) : clean),
    text,
  );
  return whole.includes("…") ? withoutTruncated(whole, secrets) : whole;
}

/** Fewer characters of a secret say nothing of it. */
const minPrefix = 4;

/** A text without what is left of secrets that were cut: `hunter2-is-m…`. */
function withoutTruncated(text: string, secrets: readonly string[]): string {
  const parts = text.split("…");
  const last = parts.pop() ?? "";
  const clean = parts.map((part) => {
    let cut = part.length;
    for (const secret of secrets) {
      const head = secret.slice(0, minPrefix);
      for (let at = part.indexOf(head); at >= 0 && at < cut; at = part.indexOf(head, at + 1)) {
        if (secret.startsWith(part.slice(at))) cut = at;
      }
    }
    return cut === part.length ? `${part}…` : `${part.slice(0, cut)}${hidden}`;
  });
  return [...clean, last].join("");
}
