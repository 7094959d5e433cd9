import { embedPaths } from "../../contract/embed-api.ts";

/** Content security policy: the page connects to this server only. */
export const pageSecurityPolicy =
  "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src blob:; connect-src 'self'";

const keyField = `<p><label>API key <input id="key" type="password" autocomplete="off" size="40"></label></p>
`;

const style = `  :root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif }
  body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
  #drop { display: block; border: 2px dashed; border-radius: .5rem; padding: 2rem; text-align: center; cursor: pointer }
  #drop:focus-within, #drop.over { outline: 3px solid Highlight }
  #files { position: absolute; opacity: 0 }
  table { border-collapse: collapse; margin: 1rem 0 }
  th, td { padding: .3rem .5rem; text-align: right; font-variant-numeric: tabular-nums }
  img { width: 4rem; height: 4rem; object-fit: cover; display: block }
  .error { color: #c02020; font-weight: 600 }
  code { font-size: .9em }
`;

const script = `  const byId = (id) => document.getElementById(id);
  byId("origin").textContent = location.origin;
  const state = async () => {
    const { ready } = await fetch("${embedPaths.readyz}").then((r) => r.json()).catch(() => ({}));
    byId("state").textContent = ready === undefined ? "unreachable" : ready ? "ready" : "not ready";
  };
  state();
  setInterval(state, 5000);
  const key = byId("key");
  const authorization = () => (key?.value ? { authorization: "Bearer " + key.value.trim() } : {});
  const showMessage = (text, error) => {
    byId("message").textContent = text;
    byId("message").className = error ? "error" : "";
  };
  const cell = (tag, content) => {
    const element = document.createElement(tag);
    element.append(content);
    return element;
  };
  const picture = (file) => {
    const image = new Image();
    image.src = URL.createObjectURL(file);
    image.alt = file.name;
    image.title = file.name;
    return image;
  };
  const embed = async (files) => {
    if (files.length === 0) return;
    showMessage("Embedding " + files.length + " images …");
    byId("result").replaceChildren();
    const form = new FormData();
    for (const file of files) form.append("images", file);
    const startedAt = performance.now();
    const response = await fetch("${embedPaths.embed}", { method: "POST", headers: authorization(), body: form });
    const answer = await response.json();
    const ms = Math.round(performance.now() - startedAt);
    if (!response.ok) {
      const { code, message, image } = answer.error;
      showMessage((image === undefined ? "" : files[image].name + ": ") + message + " (" + code + ")", true);
      return;
    }
    showMessage(files.length + " images in " + ms + " ms, model " + answer.model + ". Cosine similarity:");
    const table = document.createElement("table");
    const head = document.createElement("tr");
    head.append(cell("td", ""), ...files.map((file) => cell("th", picture(file))));
    table.append(head);
    answer.embeddings.forEach((a, row) => {
      const line = document.createElement("tr");
      line.append(cell("th", picture(files[row])));
      for (const b of answer.embeddings) {
        const cosine = a.reduce((sum, value, index) => sum + value * b[index], 0);
        line.append(cell("td", cosine.toFixed(4)));
      }
      table.append(line);
    });
    byId("result").append(table);
  };
  const run = (list) => embed([...list]).catch((error) => showMessage(String(error), true));
  byId("files").onchange = (event) => run(event.target.files);
  byId("drop").ondragover = (event) => { event.preventDefault(); byId("drop").classList.add("over"); };
  byId("drop").ondragleave = () => byId("drop").classList.remove("over");
  byId("drop").ondrop = (event) => {
    event.preventDefault();
    byId("drop").classList.remove("over");
    run(event.dataTransfer.files);
  };
`;

/**
 * Try-it page: shows the cosine similarity of the chosen images.
 *
 * @param requiresKey - Whether the page has a field for the API key.
 */
export const page = (requiresKey: boolean) => `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>clipstack embed server</title>
<style>
${style}</style>
<h1>clipstack embed server</h1>
<p>State: <strong id="state">…</strong> ·
  <a href="${embedPaths.openapi}">OpenAPI</a> · <a href="${embedPaths.metrics}">metrics</a> ·
  <a href="${embedPaths.readyz}">ready</a></p>
${requiresKey ? keyField : ""}<label id="drop">Choose or drop JPEG, PNG or WebP files
  <input id="files" type="file" accept="image/jpeg,image/png,image/webp" multiple></label>
<p id="message" role="status"></p>
<div id="result"></div>
<p><code>curl -F image=@photo.jpg <span id="origin"></span>${embedPaths.embed}</code></p>
<script>
${script}</script>
`;
