import { chartDocuments } from "../facts/chart-documents.ts";
import type { Path, ResourceChange } from "../input/change.ts";
import { PathSet } from "../input/path-set.ts";
import { commandWord, hasSecretPattern, hidden } from "../input/secrets.ts";
import {
  hasNoContent,
  isObject,
  ownValue,
  sameValue,
  serverManagedFields,
  toList,
} from "../input/value-paths.ts";
import { diffChartValues } from "./chart-values.ts";
import { diffEnvironment, isEnvironmentList } from "./diff-env.ts";
import { type DiffBlock, type DiffLine, knownAfterApply, lineOf } from "./diff-line.ts";
import { diffPbtxt, isModelConfig } from "./diff-pbtxt.ts";
import { safeKey, short, textOf, withoutSecrets } from "./diff-texts.ts";
import { byName, fieldOf, type NamedItems, namingField } from "./list-items.ts";
import {
  isConfigData,
  isFileContent,
  isFreeText,
  isPrintable,
  lastName,
} from "./printable-values.ts";

/**
 * Readable changes of a resource: environment variables and labels by name, ports by number, model configurations by field, chart
 * values by path. Secret values are reported as changed without their content.
 */
export function diffResource(change: ResourceChange, images: ImageNames): readonly DiffBlock[] {
  return new Differ(change, images).blocks();
}

/** Image names by image id or by the address of the `docker_image`. */
export interface ImageNames {
  readonly before: ReadonlyMap<string, string>;
  readonly after: ReadonlyMap<string, string>;
}

/** Attributes that are irrelevant or reported elsewhere. */
const omitted = new Set(["id", "timeouts", "output", "network_data", "hostname", "container_logs"]);

/** Container attributes that default to the image's and are unknown in the plan of a new container. */
const imageDefaults = new Set(
  "working_dir runtime platform ipc_mode stop_signal shm_size bridge log_driver user".split(" "),
);

class Differ {
  readonly #change: ResourceChange;
  readonly #images: ImageNames;
  readonly #sensitive: PathSet;
  /** Keys of paths that are known only after the apply. */
  readonly #unknownKeys: ReadonlySet<string>;
  readonly #lines: DiffLine[] = [];
  readonly #blocks: DiffBlock[] = [];

  constructor(change: ResourceChange, images: ImageNames) {
    this.#change = change;
    this.#images = images;
    this.#sensitive = new PathSet(change.sensitive);
    this.#unknownKeys = new Set(change.unknown.map(keyOf));
  }

  blocks(): readonly DiffBlock[] {
    const { before = {}, after = {} } = this.#change;
    for (const key of [...new Set([...Object.keys(before), ...Object.keys(after)])].sort()) {
      if (omitted.has(key) || this.#isImageDefault(key, ownValue(after, key))) continue;
      const isUnknown = this.#unknownKeys.has(key);
      if (key === "image") this.#image(before[key], after[key], isUnknown);
      else if (isUnknown && ownValue(after, key) === undefined) {
        this.#unknown(key, ownValue(before, key));
      } else {
        const at = { label: safeKey(key), path: [key], pathBefore: [key] };
        this.#walk(ownValue(before, key), ownValue(after, key), at);
      }
    }
    return [
      ...(this.#lines.length === 0 ? [] : [{ title: "", lines: this.#lines }]),
      ...this.#blocks.filter(({ lines }) => lines.length > 0),
    ];
  }

  #isImageDefault(key: string, after: unknown): boolean {
    const { type, replacePaths } = this.#change;
    const forced = replacePaths.some(([first]) => first === key);
    return type === "docker_container" && imageDefaults.has(key) && hasNoContent(after) && !forced;
  }

  /** Replaces the image id with its name. */
  #image(before: unknown, after: unknown, isUnknown: boolean): void {
    const { imageResource = "" } = this.#change;
    const named = (value: unknown, names: ReadonlyMap<string, string>) => {
      if (typeof value !== "string" || value === "") return undefined;
      const name = names.get(value) ?? (/^\$\{/.test(value) ? names.get(imageResource) : undefined);
      // a part computed by Terraform
      return (name ?? short(value)).replaceAll(/\$\{[^}]*\}/g, "…");
    };
    if (this.#isSecretPath(["image"])) {
      if (!sameValue(before, after)) this.#lines.push(lineOf("image", hidden, hidden));
      return;
    }
    const oldName = named(before, this.#images.before);
    const newName =
      isUnknown && hasNoContent(after)
        ? (this.#images.after.get(imageResource) ?? knownAfterApply)
        : named(after, this.#images.after);
    if (oldName !== newName) this.#lines.push(lineOf("image", oldName, newName));
  }

  /** Computed values are reported only if they force a replacement. */
  #unknown(key: string, before: unknown): void {
    const forces = this.#change.replacePaths.some(([first]) => first === key);
    if (!forces && before !== undefined) return;
    if (this.#change.action === "create" || (!forces && before === undefined)) return;
    this.#lines.push(
      lineOf(key, this.#text(before, { path: [key], pathBefore: [key] }), knownAfterApply),
    );
  }

  #walk(before: unknown, after: unknown, at: Location): void {
    if (before === after || (hasNoContent(before) && hasNoContent(after))) return;
    if (this.#isServerManaged(after, at)) return;
    const key = lastName(at.path);
    if (isEnvironmentList(key, before) || isEnvironmentList(key, after)) {
      const marked = this.#sensitive.covers(at.path);
      this.#lines.push(
        ...diffEnvironment(before, after, {
          marked,
          label: at.label,
          isSecretBefore: (index) => this.#hasSecret([...at.pathBefore, index]),
          isSecretAfter: (index) => this.#hasSecret([...at.path, index]),
        }),
      );
      return;
    }
    if (this.#isSecret(at)) {
      if (sameValue(before, after)) return;
      this.#secretMaps(before, after, at);
      return;
    }
    if (hasNoContent(after) && this.#unknownKeys.has(keyOf(at.path))) {
      if (!hasNoContent(before))
        this.#lines.push(lineOf(at.label, this.#text(before, at), knownAfterApply));
      return;
    }
    if (this.#change.type === "helm_release" && at.path[0] === "values") {
      this.#chartValues(before, after, at);
      return;
    }
    if (Array.isArray(before) || Array.isArray(after)) {
      this.#list(toList(before), toList(after), at);
      return;
    }
    if (isObject(before) || isObject(after)) {
      const [left, right] = [isObject(before) ? before : {}, isObject(after) ? after : {}];
      for (const name of [...new Set([...Object.keys(left), ...Object.keys(right)])].sort()) {
        this.#walk(ownValue(left, name), ownValue(right, name), below(at, name));
      }
      return;
    }
    this.#scalar(before, after, at);
  }

  /** Fields maintained by Kubernetes. */
  #isServerManaged(after: unknown, { path }: Location): boolean {
    const { type, replacePaths } = this.#change;
    if (!type.startsWith("kubernetes_")) return false;
    if (path[0] === "metadata" && serverManagedFields.has(lastName(path))) return true;
    const key = keyOf(path);
    const forces = replacePaths.some((it) => keyOf(it) === key);
    return hasNoContent(after) && this.#unknownKeys.has(key) && !forces;
  }

  #list(before: readonly unknown[], after: readonly unknown[], at: Location): void {
    // a name in `metadata` does not identify the block, because it can change itself
    const isMetadata = this.#change.type.startsWith("kubernetes_") && keyOf(at.path) === "metadata";
    const nameOf = isMetadata
      ? undefined
      : namingField(before, after, (index, field, list) =>
          this.#hasSecret([...(list === before ? at.pathBefore : at.path), index, field]),
        );
    if (nameOf !== undefined) this.#namedItems(byName(before, nameOf), byName(after, nameOf), at);
    else if ([...before, ...after].some((item) => typeof item === "object" && item !== null)) {
      this.#indexedItems(before, after, at);
    } else if (JSON.stringify(before) === JSON.stringify(after)) return;
    else if (/^(command|args)$/.test(lastName(at.path))) this.#options(before, after, at);
    else this.#scalarItems(before, after, at);
  }

  #namedItems(before: NamedItems, after: NamedItems, at: Location): void {
    const isLabel = /^(label|labels)$/.test(lastName(at.path));
    for (const name of new Set([...before.keys(), ...after.keys()])) {
      const [left, right] = [before.get(name), after.get(name)];
      const label = `${at.label}[${name}]`;
      const itemLocation = {
        label,
        path: [...at.path, right?.index ?? left?.index ?? 0],
        pathBefore: [...at.pathBefore, left?.index ?? right?.index ?? 0],
      };
      if (isLabel) {
        const valueLocation = { ...below(itemLocation, "value"), label };
        this.#walk(fieldOf(left?.item, "value"), fieldOf(right?.item, "value"), valueLocation);
      } else this.#walk(left?.item, right?.item, itemLocation);
    }
  }

  #indexedItems(before: readonly unknown[], after: readonly unknown[], at: Location): void {
    const length = Math.max(before.length, after.length);
    for (let index = 0; index < length; index += 1) {
      this.#walk(before[index], after[index], {
        label: length > 1 ? `${at.label}[${index}]` : at.label,
        path: [...at.path, index],
        pathBefore: [...at.pathBefore, index],
      });
    }
  }

  #scalarItems(before: readonly unknown[], after: readonly unknown[], at: Location): void {
    const removed = before.filter((item) => !after.includes(item));
    const added = after.filter((item) => !before.includes(item));
    // short or reordered lists are printed completely
    const isPartial = before.length > 3 && after.length > 3 && removed.length + added.length > 0;
    this.#lines.push(
      lineOf(
        isPartial ? `${at.label}, in part` : at.label,
        this.#itemsText(isPartial ? removed : before, before, at),
        this.#itemsText(isPartial ? added : after, after, at),
      ),
    );
  }

  /** Added and removed words of a command line. */
  #options(before: readonly unknown[], after: readonly unknown[], at: Location): void {
    const words = (list: readonly unknown[], path: Path) => {
      const found = new Map<string, Word>();
      for (const [index, word] of list.entries()) {
        const text = String(word);
        const isSecret = this.#hasSecret([...path, index]) || hasSecretPattern(text);
        const { option, value = "set" } = commandWord(list, index);
        // hides a secret completely, including its apparent name
        const [label, printed] =
          isSecret || option === undefined
            ? [`${at.label}[${index}]`, hidden]
            : [`${at.label} ${option}`, value];
        found.set(label, withRepeated(found.get(label), { printed, text }));
      }
      return found;
    };
    const [left, right] = [words(before, at.pathBefore), words(after, at.path)];
    for (const label of new Set([...left.keys(), ...right.keys()])) {
      const [old, current] = [left.get(label), right.get(label)];
      const isHidden = old?.printed === hidden;
      if (old?.printed === current?.printed && (!isHidden || old.text === current?.text)) continue;
      this.#lines.push(
        lineOf(short(label), old && short(old.printed), current && short(current.printed)),
      );
    }
  }

  #itemsText(list: readonly unknown[], all: readonly unknown[], at: Location): string | undefined {
    if (list.length === 0) return undefined;
    const secret = this.#sensitive.reaches(at.path) || this.#sensitive.reaches(at.pathBefore);
    const isCommand = /^(test|entrypoint)$/.test(lastName(at.path));
    const texts = list.map((item) => {
      if (secret || hasSecretPattern(String(item))) return hidden;
      if (!isPrintable(this.#change.type, at.path, String(item))) return hidden;
      if (!isCommand) return String(item);
      const { option, value } = commandWord(all, all.indexOf(item));
      return value === undefined ? option : option === undefined ? value : `${option}=${value}`;
    });
    return short(`[${texts.join(", ")}]`);
  }

  #scalar(before: unknown, after: unknown, at: Location): void {
    const [left, right] = [textOf(before), textOf(after)];
    if (isModelConfig(left) || isModelConfig(right)) {
      const block = diffPbtxt(left, right);
      if (block !== undefined) {
        this.#blocks.push({ title: block.title, lines: block.lines.map(withoutSecrets) });
        return;
      }
    }
    this.#lines.push(lineOf(at.label, this.#text(before, at), this.#text(after, at)));
  }

  #hidden(label: string, before: boolean, after: boolean): void {
    this.#lines.push(lineOf(label, before ? hidden : undefined, after ? hidden : undefined));
  }

  /** Adds lines for the changed keys of a secret map, without values. */
  #secretMaps(before: unknown, after: unknown, at: Location): void {
    const isData = /^(data|binary_data|string_data|stringData|data_wo)$/.test(lastName(at.path));
    const isMap = isData && this.#change.type !== "docker_secret";
    if (!isMap || !(isObject(before) || isObject(after))) {
      this.#hidden(at.label, !hasNoContent(before), !hasNoContent(after));
      return;
    }
    const [left, right] = [isObject(before) ? before : {}, isObject(after) ? after : {}];
    for (const key of [...new Set([...Object.keys(left), ...Object.keys(right)])].sort()) {
      const [value, newValue] = [ownValue(left, key), ownValue(right, key)];
      if (sameValue(value, newValue)) continue;
      this.#hidden(`${at.label}.${safeKey(key)}`, value !== undefined, newValue !== undefined);
    }
  }

  /** Adds changes of chart values by path, printing only values that cannot be secrets. */
  #chartValues(before: unknown, after: unknown, at: Location): void {
    const [left, right] = [chartDocuments(before), chartDocuments(after)];
    if (left === undefined || right === undefined) {
      this.#hidden(at.label, !hasNoContent(before), !hasNoContent(after));
      return;
    }
    const { lines, blocks } = diffChartValues(left, right);
    this.#lines.push(...lines);
    this.#blocks.push(...blocks);
  }

  #isSecret({ path, pathBefore }: Pick<Location, "path" | "pathBefore">): boolean {
    return this.#isSecretPath(path) || this.#isSecretPath(pathBefore);
  }

  #isSecretPath(path: Path): boolean {
    return this.#sensitive.covers(path) || isFreeText(this.#change.type, path);
  }

  /** Whether the value at a path is or contains a secret. */
  #hasSecret(path: Path): boolean {
    return this.#isSecretPath(path) || this.#sensitive.reaches(path);
  }

  #text(value: unknown, at: Pick<Location, "path" | "pathBefore">): string | undefined {
    if (hasNoContent(value) && value !== false) return undefined;
    if (this.#hasSecret(at.path) || this.#hasSecret(at.pathBefore)) return hidden;
    const text = textOf(value);
    if (hasSecretPattern(text) || !isPrintable(this.#change.type, at.path, text)) return hidden;
    // file contents may be secret
    if (isFileContent(at.path) || isConfigData(this.#change.type, at.path))
      return `a text of ${text.length} characters`;
    const lines = text.split("\n").length;
    if (lines > 2) return `a text of ${lines} lines`;
    return short(text);
  }
}

/** A word of a command line. */
interface Word {
  readonly printed: string;
  readonly text: string;
}

/** All values of an option that a command line repeats. */
function withRepeated(former: Word | undefined, word: Word): Word {
  if (former === undefined) return word;
  const printed = [...new Set([former.printed, word.printed])];
  return {
    printed: printed.includes(hidden) ? hidden : printed.join(", "),
    text: `${former.text} ${word.text}`,
  };
}

function keyOf(path: Path): string {
  return path.join("\u0000");
}

interface Location {
  /** Readable path. */
  readonly label: string;
  readonly path: Path;
  /** Path before the change, because list indices may differ. */
  readonly pathBefore: Path;
}

function below(at: Location, step: string): Location {
  const suffix = /^[\w-]+$/.test(step) ? `.${safeKey(step)}` : `[${safeKey(step)}]`;
  return {
    label: `${at.label}${suffix}`,
    path: [...at.path, step],
    pathBefore: [...at.pathBefore, step],
  };
}
