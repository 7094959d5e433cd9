// JSON Schemas of Kubernetes' objects, one file for each kind, in the form that kubeconform reads. A field that the API server
// does not know is an error.
// usage: node kubernetes-schemas.mjs openapi FOLDER swagger.json   FOLDER/deployment-apps-v1.json, …
//        node kubernetes-schemas.mjs crds FOLDER crd.yaml…         FOLDER/keda.sh/scaledobject_v1alpha1.json, …
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { parseAllDocuments } from "yaml";

/** Kubernetes' own types that are written in more than one way. */
const scalars = {
  "io.k8s.apimachinery.pkg.util.intstr.IntOrString": { type: ["string", "integer"] },
  "io.k8s.apimachinery.pkg.api.resource.Quantity": { type: ["string", "number"] },
};

/** Objects have no other properties than those that are named, unless they say so. */
function strict(schema) {
  if (Array.isArray(schema)) return schema.map(strict);
  if (schema === null || typeof schema !== "object") return schema;
  const result = {};
  for (const [key, value] of Object.entries(schema)) {
    // a property may have any name: also one that is a word of JSON Schema
    const named = key === "properties" || key === "definitions";
    result[key] = named
      ? Object.fromEntries(Object.entries(value).map(([name, of]) => [name, strict(of)]))
      : key === "default" || key === "enum"
        ? value
        : strict(value);
  }
  const open =
    "additionalProperties" in result || result["x-kubernetes-preserve-unknown-fields"] === true;
  if (result.properties !== undefined && !open) result.additionalProperties = false;
  if (result["x-kubernetes-int-or-string"] === true) {
    result.type = ["string", "integer"];
    delete result.anyOf;
  }
  return result;
}

/** The definitions that a schema needs, those of its definitions included. */
function needed(schema, definitions, found = new Set()) {
  for (const [, name] of JSON.stringify(schema).matchAll(/"#\/definitions\/([^"]+)"/g)) {
    if (found.has(name)) continue;
    found.add(name);
    needed(definitions[name], definitions, found);
  }
  return found;
}

function write(file, schema) {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(
    file,
    JSON.stringify({ $schema: "http://json-schema.org/draft-07/schema#", ...schema }),
  );
}

function openapi(folder, swagger) {
  const definitions = {
    ...Object.fromEntries(
      Object.entries(JSON.parse(readFileSync(swagger, "utf8")).definitions).map(([name, it]) => [
        name,
        strict(it),
      ]),
    ),
    ...scalars,
  };
  for (const definition of Object.values(definitions)) {
    const kinds = definition["x-kubernetes-group-version-kind"] ?? [];
    // options and events are no objects of their own
    if (kinds.length !== 1 || definition.properties?.apiVersion === undefined) continue;
    const [{ group, version, kind }] = kinds;
    const words = [kind, ...(group === "" ? [] : [group.split(".")[0]]), version];
    const own = structuredClone(definition);
    own.properties.apiVersion.enum = [group === "" ? version : `${group}/${version}`];
    own.properties.kind.enum = [kind];
    own.required = [...new Set([...(own.required ?? []), "apiVersion", "kind"])];
    const names = [...needed(own, definitions)].sort();
    own.definitions = Object.fromEntries(names.map((it) => [it, definitions[it]]));
    write(join(folder, `${words.join("-").toLowerCase()}.json`), own);
  }
}

function crds(folder, files) {
  for (const file of files) {
    for (const document of parseAllDocuments(readFileSync(file, "utf8"))) {
      const { kind, spec } = document.toJS() ?? {};
      if (kind !== "CustomResourceDefinition") continue;
      for (const { name, schema } of spec.versions) {
        const own = strict(schema.openAPIV3Schema);
        // the API server provides the schema of metadata
        own.properties.metadata = { type: "object" };
        own.properties.apiVersion.enum = [`${spec.group}/${name}`];
        own.properties.kind.enum = [spec.names.kind];
        own.required = [...new Set([...(own.required ?? []), "apiVersion", "kind"])];
        write(join(folder, spec.group, `${spec.names.kind.toLowerCase()}_${name}.json`), own);
      }
    }
  }
}

const [what, folder, ...files] = process.argv.slice(2);
if (what === "openapi") openapi(folder, files[0]);
else crds(folder, files);
