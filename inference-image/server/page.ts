import { embedPaths } from "../../contract/embed-api.ts";
import { scrollShadows } from "../../contract/scroll-shadows.ts";
import type { ServedModel, ServedModels } from "../models/served-models.ts";
import { maxTableImages, pageScript } from "./page-script.ts";

/** Content security policy: the page connects to this server only, and no other page embeds it. */
export const pageSecurityPolicy =
  "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src blob:; connect-src 'self'; frame-ancestors 'none'";

const keyField = `<p><label>API key <input id="key" type="password" autocomplete="off" size="40"></label></p>
`;

const style = `  :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
  body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
  #drop { border: 2px dashed; border-radius: .5rem; padding: 1rem; text-align: center }
  #drop.over { outline: 3px solid Highlight }
  #drop label { display: inline-block; margin: .5rem 1rem }
  .scroll { ${scrollShadows("Canvas")} margin: 1rem 0 }
  table { border-collapse: collapse }
  caption { text-align: left; font-weight: 600 }
  th, td { padding: .3rem .5rem; text-align: right; font-variant-numeric: tabular-nums }
  th[scope=row], th[scope=col] { text-align: left }
  img { width: 4rem; height: 4rem; object-fit: cover; display: block }
  ol { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: 1rem; padding: 0; list-style: none }
  figure { margin: 0; overflow-wrap: anywhere }
  figure img { width: 100%; height: 8rem }
  progress { width: 100% }
  .error { color: #c02020; font-weight: 600 }
  @media (prefers-color-scheme: dark) { .error { color: #ff8a80 } }
  code { font-size: .9em }
`;

/** Row of a model, whose name has only letters, digits and `-`. */
function modelRow({ spec, image, text }: ServedModel): string {
  const yes = (tower: unknown) => (tower === undefined ? "no" : "yes");
  return `<tr><th scope="row">${spec.name}</th><td>${yes(image)}</td><td>${yes(text)}</td><td>${spec.embedding.width}</td></tr>`;
}

/** Names the models with random weights; empty if there are none. */
function randomWeightsNotice(models: readonly ServedModel[]): string {
  const names = models.flatMap((model) => (model.hasRandomWeights ? [model.spec.name] : []));
  if (names.length === 0) return "";
  return `<p id="random">Random weights, for tests: ${names.join(", ")}. Similarities and search results have no meaning.</p>
`;
}

/** Choice of a model that embeds images. */
function modelOption({ spec, text }: ServedModel): string {
  return `<option data-texts="${text !== undefined}">${spec.name}</option>`;
}

/**
 * Try-it page: lists the models, compares the chosen images, and searches them by text.
 *
 * @param requiresKey - Whether the page has a field for the API key.
 */
export function page(models: ServedModels, requiresKey: boolean): string {
  // while the models are loading, their files are not known
  const served: readonly ServedModel[] = models.loaded
    ? models.all
    : models.specs.map((spec) => ({ spec }));
  const withImages = models.loaded ? served.filter(({ image }) => image !== undefined) : served;
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>clipstack embed server</title>
<style>
${style}</style>
<main>
<h1>clipstack embed server</h1>
<p>State: <strong id="state">…</strong> ·
  <a href="${embedPaths.openapi}">OpenAPI</a> · <a href="${embedPaths.metrics}">metrics</a> ·
  <a href="${embedPaths.readyz}">ready</a></p>
<div class="scroll" role="region" aria-label="Models" tabindex="0"><table id="models"><caption>Models${models.loaded ? "" : " (loading: reload the page)"}</caption>
<tr><th scope="col">model</th><th scope="col">images</th><th scope="col">texts</th><th scope="col">width</th></tr>
${served.map(modelRow).join("\n")}
</table></div>
${randomWeightsNotice(served)}${requiresKey ? keyField : ""}<p><label for="model">Model</label> <select id="model">${withImages.map(modelOption).join("")}</select></p>
<div id="drop">
  <p>Drop JPEG, PNG or WebP files here, or choose</p>
  <label>files <input id="files" type="file" accept="image/jpeg,image/png,image/webp" multiple></label>
  <label>a folder <input id="folder" type="file" webkitdirectory></label>
  <p>This server embeds each image and stores none. Up to ${maxTableImages} images are then compared with each other below; any number can be searched by text.</p>
</div>
<form id="searchForm" role="search">
  <p><label>Search the images by text <input id="text" type="search" size="40" autocomplete="off"></label>
  <button id="search">Search</button></p>
  <p id="noTexts" hidden>The selected model has no text tower here: its images can be compared, but not searched by text.</p>
</form>
<p id="message" role="status"></p>
<progress id="progress" aria-label="Embedded images" hidden></progress>
<div id="result"></div>
<p><code>curl -F image=@photo.jpg <span id="origin"></span>${embedPaths.embed}</code></p>
</main>
<script>
${pageScript}</script>
</html>
`;
}
