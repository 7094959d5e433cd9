import type { Path } from "../input/change.ts";

/** Returns whether an argument of a release is free text. */
export function isFreeText(type: string, path: Path): boolean {
  if (type !== "helm_release") return false;
  const [first] = path;
  if (first === "set" || first === "set_list") return path.includes("value");
  return first === "postrender" || first === "description";
}

/** Types with known arguments. */
const knownTypes =
  /^(docker_(container|image|network|volume|tag|registry_image)|kubernetes_(?!manifest$)\w+|helm_release|terraform_data)$/;
/** Arguments of any provider that describe kind, size or location. */
const plainFields =
  /(^|_)(name|type|size|class|region|zone|version|engine|mode|protocol|family|tier|sku|kind|image|ami|cidr|cidrs|port|ports|driver|algorithm|location|status|provider|namespace|length|format)(_blocks?)?$/i;
const plainWord = /^[\w.:/+-]{1,100}$/;
/** Returns whether a text without the name or form of a secret may be printed; unknown types may contain secrets anywhere. */
export function isPrintable(type: string, path: Path, text: string): boolean {
  if (/^(-?\d{1,12}(\.\d{1,6})?[a-zA-Z]{0,2}|true|false|)$/.test(text)) return true;
  const words = path.filter((step) => typeof step === "string");
  // driver options may contain credentials, annotations whole configuration files
  if (words.includes("driver_opts") || words.includes("log_opts") || words.includes("options")) {
    return (
      /^[\w.:/-]{1,100}$/.test(text) &&
      /^(type|device|mode|max-size|max-file|o)$/.test(words.at(-1) ?? "")
    );
  }
  if (words.includes("annotations")) return plainWord.test(text);
  if (words.includes("http_header") || words.includes("sysctls")) return words.at(-1) === "name";
  return knownTypes.test(type) || (plainFields.test(words.at(-1) ?? "") && plainWord.test(text));
}

export function lastName(path: Path): string {
  return String(path.filter((step) => typeof step === "string").at(-1) ?? "");
}

export function isFileContent(path: Path): boolean {
  return path[0] === "upload" && /^content/.test(lastName(path));
}

/** Returns whether a path is ConfigMap data, which may contain secrets. */
export function isConfigData(type: string, path: Path): boolean {
  if (/^kubernetes_config_map(_v1)?(_data)?$/.test(type))
    return /^(binary_)?data$/.test(String(path[0]));
  if (type !== "kubernetes_manifest") return false;
  return /^(manifest|object)$/.test(String(path[0])) && /^(data|binaryData)$/.test(String(path[1]));
}
