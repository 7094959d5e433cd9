import { valueAt } from "../../contract/issue-lines.ts";
import { serverEnv } from "../../contract/server/server-env.ts";
import type { Path, Values } from "./change.ts";
import { PathSet } from "./path-set.ts";
import { blocksOf, isObject, isWithin, visitTexts } from "./value-paths.ts";

/** Printed instead of a hidden value. */
export const hidden = "(not shown)";

const secretWords =
  /(^|[^a-z])(pass(word|wd|phrase)?|pwd|secrets?|tokens?|jwt|credentials?|api[^a-z]?keys?|(access|private|secret|signing|encryption|account|auth|license|ssh|deploy|master|shared|client)[^a-z]?keys?|keys?|bearer|authorization|auths?|cookie|session|dsn|salt|pin|otp|cert(ificate)?[^a-z]?data|kubeconfig[^a-z]?raw|connection[^a-z]?string|webhook[^a-z]?url|(slack|discord|teams|mattermost|chat|alert)[^a-z]?webhooks?)($|[^a-z])/;

/** Names that end in a secret word without a separator: `PGPASSWORD`, `githubtoken`, `rootpw`. */
const secretEndings =
  /((password|passwd|apikey|secret|token)|(root|admin|user|db|pg|my|sql|redis|mongo|smtp|imap|ftp|http|ldap|proxy|registry|docker|git|htp?|auth)(pass|pwd|pw)|(ngc|nvidia|openai|hf|aws|gcp|azure|ssh|gpg|pgp)key)$/;

/** Names with a secret word whose values are not secret. */
const harmlessNames =
  /^(allow_anonymous|key|(public|sort|partition|topology|primary|foreign)_?keys?|(.*_)?(routing|hash|range)_keys?|.*password_key|(.*_)?(existing|pull|tls|credentials|keys)_?secrets?(_.*)?|.*_(file|path|dir|secret_name|key_name)|secret_?name|key_?secret|.*\.(secretname|keysecret)|.*secret_?(key_?)?ref.*|.*from_?secrets?|author(ity|s)?|tls_(cert|key)_file|tokeni[sz].*|(.*_)?(max|min|num|number|total)_(.*_)?tokens?|(.*_)?(pad|eos|bos|unk|mask|sep|cls|stop|special)_?tokens?(_ids?)?|.*_(timeout|ttl|lifetime|expiry|interval|seconds|minutes|hours|days|limit|count|length|size|parallelism|enabled))$/;

/** Names of what belongs to a key or a session without being one: `kms_key_id`, `auth_mode`. */
const aboutSecrets =
  /^((.*_)?public_keys?(_.*)?|(.*_)?authorized_keys?|(.*_)?secrets?_arns?|(.*_)?(auth|token|secret)_(url|uri|endpoint)s?|(.*_)?keys?_(ids?|names?|arns?|alias(es)?|types?|usage|specs?|algorithms?|versions?|policy|policies|sizes?|rings?|pairs?(_(id|name))?|rotation(_.*)?|vaults?(_(id|name|uri))?)|(.*_)?(auth|authentication|authorization|session|cookie|token|password|credentials?|cert(ificate)?)_(modes?|types?|methods?|polic(y|ies)|affinity|providers?|schemes?|strateg(y|ies)|backends?|versions?|formats?|algorithms?|domains?|names?|duration|manager|class|rotation(_.*)?)|.*_(header|prefix|suffix|issuer|audience|backend)(_name)?)$/;

/** Returns whether a name is that of a secret: `API_KEY`, `registryPassword`, `auth.token`. */
export function isSecretName(name: string): boolean {
  const cached = secretNames.get(name);
  if (cached !== undefined) return cached;
  const isSecret = hasSecretWord(name);
  if (secretNames.size < maxCachedNames) secretNames.set(name, isSecret);
  return isSecret;
}

/** Results by name, because thousands of resources share the same attribute names. */
const secretNames = new Map<string, boolean>();
const maxCachedNames = 10_000;

function hasSecretWord(name: string): boolean {
  const words = wordsOf(name);
  return !isHarmless(words) && (secretWords.test(words) || secretEndings.test(words));
}

function isHarmless(words: string): boolean {
  return harmlessNames.test(words) || aboutSecrets.test(words);
}

function wordsOf(name: string): string {
  return name
    .replaceAll(/([a-z0-9])([A-Z])/g, "$1_$2")
    .toLowerCase()
    .replaceAll("-", "_");
}

/** Public keys of OpenSSH and in PEM, and certificates. */
const publicKey =
  /^\s*((ssh-(rsa|dss|ed25519)|ecdsa-sha2-nistp\d{3}|sk-[\w-]{1,40}@openssh\.com) AAAA[\w+/]|-----BEGIN (CERTIFICATE|[A-Z ]{0,20}PUBLIC KEY)-----(?![\s\S]*PRIVATE KEY))/;

export function isPublicKey(text: string): boolean {
  return publicKey.test(/^\s*LS0tLS1CRUdJTi/.test(text) ? decoded(text) : text);
}

function decoded(base64: string): string {
  return Buffer.from(base64, "base64").toString();
}

/** References to a secret that is kept elsewhere, and names that a shell or a template replaces: `arn:aws:…`, `$(DB_PASSWORD)`. */
const references =
  /^(arn:|projects\/|\/subscriptions\/|(vault|ssm|op|sm|secretref):|@Microsoft\.KeyVault\(|\$[({]?\w+[)}]?$|\{\{)/;

/**
 * Returns whether the value of a secret name can be a secret. Public keys and booleans cannot; short values and numbers can only be passwords:
 * `SESSION_MAX=30` and `CACHE_KEY=v1` are settings, `DB_PASSWORD=1234` is a password.
 */
export function canBeSecret(name: string, value: string): boolean {
  if (
    value === "" ||
    /^(true|false|on|off|yes|no|none|null|seconds|minutes|hours|days)$/i.test(value)
  )
    return false;
  if (isPublicKey(value) || references.test(value)) return false;
  const words = wordsOf(name);
  if (/(pass(word|wd|phrase)?|pwd|pw|secret)$/.test(words)) return true;
  return value.length >= 6 && (!/^-?[\d.]+$/.test(value) || /key$/.test(words));
}

/**
 * Formats of secrets. A pattern is applied only if the cheaper hint matches. Repetitions are bounded or cannot overlap themselves, so that
 * matching takes linear time in texts of hundreds of kilobytes.
 */
const secretPatterns: readonly {
  readonly hint: RegExp;
  readonly pattern: RegExp | ((text: string) => boolean);
}[] = [
  // a URL with a password: scheme://user:password@host
  { hint: /:\/\//, pattern: /[a-z0-9]:\/\/[^/\s:@]{0,256}:[^/\s@]+@/i },
  { hint: /-----BEGIN/, pattern: /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----/ },
  {
    hint: /LS0tLS1CRUdJTi/,
    pattern: (text) =>
      [...text.matchAll(/LS0tLS1CRUdJTi[\w+/]{10,50}/g)].some(([start]) =>
        /PRIVATE KEY/.test(decoded(start)),
      ),
  },
  // base64 of `{"…`: a JSON Web Token, or registry credentials
  { hint: /eyJ/, pattern: /eyJ[\w+/-]{16}/ },
  { hint: /A[KS]IA/, pattern: /\b(AKIA|ASIA)[0-9A-Z]{16}\b/ },
  {
    hint: /[_-]/,
    pattern:
      /\b(gh[pousr]_|github_pat_|gl(pat|rt|dt|ptt|cbt|agent)-|xox[abprs]-|sk-|[sr]k_(live|test)_|hf_|npm_|pypi-|dckr_pat_|nvapi-|AGE-SECRET-KEY-1)[\w-]{10}/,
  },
  // Google, SendGrid, Vault
  { hint: /AIza|SG\.|hv[sb]\./, pattern: /\b(AIza[\w-]{20}|SG\.[\w-]{10}|hv[sb]\.[\w-]{10})/ },
  // webhook URLs, which are credentials
  {
    hint: /hooks?[./]/i,
    pattern:
      /hooks\.slack\.com\/(services|workflows|triggers)\/\w|discord(app)?\.com\/api\/webhooks\/\w|webhook\.office\.com\/\w/i,
  },
  // Azure and AWS: connection strings and signed URLs
  { hint: /Key=|sig/i, pattern: /\b(AccountKey|SharedAccessKey|SharedSecretKey)=[^\s;$]/i },
  { hint: /sig/i, pattern: /[?&](sig|X-Amz-Signature)=[\w%+/-]{8}/i },
  { hint: /pass|pwd/i, pattern: /(^|[^a-z])(pass|pwd)=[^\s,;$]/i },
  {
    hint: /bearer|basic/i,
    // with a digit, a capital within or 20 characters, unlike "Basic variables"
    pattern:
      /\b([Bb]earer|BEARER|[Bb]asic|BASIC)\s{1,8}(?=[\w.~+/-]{0,99}([\d=]|[a-z][A-Z])|[\w.~+/-]{20})[\w.~+/-]{8}/,
  },
  // command-line option or variable: --password=…, API_KEY=…
  { hint: /passw|secret|token|api[-_]?key|bindpw/i, pattern: hasSecretSetting },
  // user:password@host without a scheme, but not `image:tag@sha256:…`, a URI of another kind, or a principal of Google Cloud
  {
    hint: /:[^\s/@]+@/,
    pattern:
      /(^|[\s"'=])(?!(npm|jsr|pkg|mailto|acct|sips?|xmpp):)(?!(deleted:)?(user|serviceAccount|group|principal|principalSet):[\w.+-]{1,64}@[\w-]{1,64}(\.[\w-]{1,64}){1,8}(\?uid=\d{1,30})?($|[\s"',\]]))[\w.-]{1,64}:[^\s/@]{1,256}@(?!sha256:)[\w.-]/,
  },
  // curl -u user:password, redis-cli -a password
  { hint: /\s-u|\s--user/, pattern: /\s(-u|--user)[\s=]{0,4}[^\s:]{1,64}:[^\s]/ },
  { hint: /redis-cli/, pattern: /redis-cli\s([^|;&\n]{0,200}\s)?-a\s{0,4}\S/ },
  { hint: /requirepass|masterauth/, pattern: /(requirepass|masterauth)\s{1,8}\S/ },
  // password hashes, as in htpasswd and /etc/shadow
  { hint: /\$/, pattern: /\$(apr1|2[abxy]|[156y]|argon2(id|i|d)|scrypt)\$[\w./$=,+-]{4}/ },
  { hint: /\{/, pattern: /\{(S?SHA\d{0,3}|S?MD5|CRYPT)\}\S/i },
  // JSON field, but not the name in `"existingSecret": "keys"`
  {
    hint: /"\s{0,8}:/,
    pattern:
      /(password|passwd|token|api[-_]?key|(?<!existing_?)secret[-_]?key|client[-_]?secret|auth)" {0,8}: {0,8}"[^"$]/i,
  },
  // variable of a container in JSON or YAML: `"name":"API_KEY","value":"…"`
  { hint: /value"? {0,4}:/, pattern: hasSecretVariable },
  // XML, .netrc
  {
    hint: /passw/i,
    pattern: /<\w{0,32}passw(or)?d>[^<$\s]|\slogin\s{1,8}\S{1,64}\s{1,8}password\s{1,8}[^\s$]/i,
  },
];

/** Returns whether a text contains something that looks like a secret. */
export function hasSecretPattern(text: string): boolean {
  return (
    text.length >= 8 &&
    secretPatterns.some(
      ({ hint, pattern }) =>
        hint.test(text) && (pattern instanceof RegExp ? pattern.test(text) : pattern(text)),
    )
  );
}

function hasSecretVariable(text: string): boolean {
  const variables = text.matchAll(
    /name"? {0,4}: {0,4}"?(\w{1,64})"?,?\s{0,40}"?value"? {0,4}: {0,4}"?([^\s"$]{1,256})/g,
  );
  return [...variables].some(
    ([, name = "", value = ""]) => isSecretName(name) && canBeSecret(name, value),
  );
}

/** Matches `--password=…` and `API_KEY: …`, but not `MAX_TOKENS=512`. */
function hasSecretSetting(text: string): boolean {
  const settings = text.matchAll(
    /(?:password|passwd|secret|token|api[-_]?key|bindpw)[\w-]{0,64}\s{0,8}[=:][ \t]{0,8}([^\s$][^\s,;&|]{0,64})/gi,
  );
  for (const { index, 0: setting, 1: value = "" } of settings) {
    const start = text.slice(Math.max(0, index - 64), index);
    const [prefix] = /[\w.-]*$/.exec(start) ?? [""];
    if (/arn:[\w:-]*$/.test(start)) continue;
    const name = `${prefix}${setting.slice(0, setting.search(/\s{0,8}[=:]/))}`.replace(/^-+/, "");
    if (isHarmless(wordsOf(name))) continue;
    if (canBeSecret(name, value.replace(/^["'](.*?)["']?$/, "$1"))) return true;
  }
  return false;
}

/** Text that is only a Terraform expression. */
export const onlyExpression = /^\$\{[^}"]*\}$/;

/** Attributes of a Kubernetes Secret that contain values, in typed resources and manifests. */
const secretMaps = ["data", "binary_data", "data_wo", "string_data", "stringData"] as const;

/** Paths of a resource's secrets, by type, attribute name and format of the value. */
export function secretPaths(type: string, values: Values | undefined): readonly Path[] {
  if (values === undefined) return [];
  const byType = secretAttributes(type, values);
  const found = [...byType];
  visitTexts(values, (text, path, parent) => {
    if (text === "" || onlyExpression.test(text)) return;
    const name = nameOfValue(parent, path, text);
    if (!(name !== undefined && isSecretName(name)) && !hasSecretPattern(text)) return;
    if (!byType.some((secret) => isWithin(path, secret))) found.push([...path]);
  });
  return found;
}

function secretAttributes(type: string, values: Values): readonly Path[] {
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
    // `metadata` contains the merged values, including those of `set_sensitive`
    for (const key of ["set_sensitive", "set_wo", "metadata", "manifest", "resources"]) add(key);
    add("repository_password");
  }
  return found;
}

/** Name of a value: its key, the `name` next to a `value`, the part before `=`, or the preceding command-line option. */
function nameOfValue(parent: unknown, path: Path, text: string): string | undefined {
  const last = path.at(-1);
  if (typeof last === "number") {
    const list = path.at(-2);
    if (list === "env" || list === "environment") return /^([^=]*)=./s.exec(text)?.[1];
    // option and value as two words of a command line
    const previous = Array.isArray(parent) ? parent[last - 1] : undefined;
    if ((previous === "-u" || previous === "--user") && text.includes(":")) return "password";
    if (typeof previous === "string" && /^--?[\w-]+$/.test(previous)) return previous;
    return undefined;
  }
  if (last === "value" && isObject(parent)) {
    const { name, label, key } = parent;
    return [name, label, key].find((it): it is string => typeof it === "string");
  }
  // `key` and `name` of references and tolerations are names
  if (last === "key" || last === "name") return undefined;
  return last;
}

/** Names that a secret has, and hardly anything else, among the attributes of any resource. */
const certainNames =
  /(^|_)(password|passwd|passphrase|token|api_?key|(secret|private|access)_key|client_secret)$/;
const variableLists = /^(env|environment|env_vars?|(environment_)?variables|app_settings)$/;

/** Named values that can only be secrets: variables, and attributes with the name of a secret. */
export function namedSecrets(
  values: unknown,
): readonly { readonly path: Path; readonly name: string; readonly text: string }[] {
  const found: { path: Path; name: string; text: string }[] = [];
  visitTexts(values, (text, path, parent) => {
    const name = nameOfValue(parent, path, text);
    if (name === undefined || text.includes("${") || !isSecretName(name)) return;
    const isVariable = path.slice(-3, -1).some((it) => variableLists.test(String(it)));
    if (!isVariable && !certainNames.test(wordsOf(name))) return;
    const value = text.startsWith(`${name}=`) ? text.slice(name.length + 1) : text;
    if (!canBeSecret(name, value)) return;
    found.push({ path: [...path], name: isVariable ? name : path.map(String).join("."), text });
  });
  return found;
}

/** Replaces the values at sensitive paths with {@link hidden}. */
export function mask(values: Values, sensitive: readonly Path[]): Values {
  const walk = (value: unknown, paths: PathSet | undefined): unknown => {
    if (paths === undefined) return value;
    if (paths.hasRoot) return hidden;
    if (Array.isArray(value)) return value.map((item, index) => walk(item, paths.below(index)));
    if (!isObject(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, item]) => [key, walk(item, paths.below(key))]),
    );
  };
  const masked = walk(values, new PathSet(sensitive));
  return isObject(masked) ? masked : {};
}

/** Environment variables with values that are never secret. */
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

/** Printable text of an environment variable's value. */
export function variableText(name: string, value: string, secret: boolean): string {
  if (secret || isSecretName(name) || hasSecretPattern(value)) return hidden;
  if (printableVariables.has(name)) return value;
  return /^(-?\d{1,9}(\.\d{1,6})?|true|false|on|off|yes|no)$/i.test(value) ? value : hidden;
}

/** Triton options with values that are never secret. */
const printableOptions = new Set([
  ...["model-repository", "model-config-name", "model-control-mode", "load-model"],
  ...["http-address", "grpc-address", "metrics-address", "metrics-config"],
]);

const printableValue =
  /^(-?\d{1,12}(\.\d{1,6})?(ms|[smhkKMGT]i?)?|true|false|on|off|yes|no|\/[\w./-]{0,200})$/;
const printablePrograms =
  /^(CMD|CMD-SHELL|NONE|tritonserver|serve|node|python3?|sh|bash|curl|wget|true)$/;
const loopbackUrl = /^https?:\/\/(127\.0\.0\.1|localhost)(:\d{1,5})?(\/[\w./-]{0,100})?$/;

/** Printable text of a word of a command line: options, numbers, booleans, paths, loopback URLs and known programs. Others are hidden. */
export function commandWord(words: readonly unknown[], index: number): CommandWord {
  const text = String(words[index]);
  const [, dashes = "", name = "", , value] =
    /^(--?)([A-Za-z][\w-]{0,60})(=(.*))?$/s.exec(text) ?? [];
  if (name !== "" && value === undefined) return { option: text, value: undefined };
  if (name !== "" && value !== undefined) {
    const isPrintable =
      printableValue.test(value) || (dashes === "--" && isPrintableOption(name, value));
    return { option: `${dashes}${name}`, value: isPrintable ? value : hidden };
  }
  const previous = words[index - 1];
  const isOptionValue =
    typeof previous === "string" &&
    previous.startsWith("--") &&
    isPrintableOption(previous.slice(2), text);
  const isPrintable =
    printablePrograms.test(text) ||
    isOptionValue ||
    printableValue.test(text) ||
    loopbackUrl.test(text);
  return isPrintable ? { option: text, value: undefined } : { option: undefined, value: hidden };
}

/** Word of a command line: an option, a value, or both joined by `=`. A hidden word has only a value. */
export interface CommandWord {
  readonly option: string | undefined;
  readonly value: string | undefined;
}

function isPrintableOption(name: string, value: string): boolean {
  return (
    printableOptions.has(name) && /^[\w.:/,=*-]{1,100}$/.test(value) && !hasSecretPattern(value)
  );
}

/** Removes user and password from a URL. */
export function withoutUser(url: string): string {
  return url.replace(/:\/\/[^/\s]*@/, "://");
}

/** Joins the lines of a text and abbreviates SHA-256 checksums. */
export function shortenedText(text: string): string {
  return text
    .replaceAll(/\s+/g, " ")
    .replaceAll(/(?<![0-9a-f])([0-9a-f]{12})[0-9a-f]{52}(?![0-9a-f])/g, "$1…");
}
