import { embedPaths, imageContentTypes, maxImagesPerRequest } from "../../contract/embed-api.ts";

/**
 * Maximum number of images for which the page shows the similarity table. Larger selections can only
 * be searched by text.
 */
export const maxTableImages = 12;
/** Maximum number of results of a search. */
const maxResults = 50;

/** Script of the page: embeds the chosen images by the API, compares them, and ranks them by their cosine to a text. */
export const pageScript = `  const byId = (id) => document.getElementById(id);
  byId("origin").textContent = location.origin;
  const checkState = async () => {
    const { ready } = await fetch("${embedPaths.readyz}").then((r) => r.json()).catch(() => ({}));
    byId("state").textContent = ready === undefined ? "unreachable" : ready ? "ready" : "not ready";
  };
  checkState();
  setInterval(checkState, 5000);
  const key = byId("key");
  const authorization = () => (key?.value ? { authorization: "Bearer " + key.value.trim() } : {});
  const showMessage = (text, error) => {
    byId("message").textContent = text;
    byId("message").className = error ? "error" : "";
  };
  const model = () => byId("model").value;
  const create = (tag, ...content) => {
    const element = document.createElement(tag);
    element.append(...content);
    return element;
  };
  let urls = [];
  const showResult = (content) => {
    const old = urls;
    urls = [];
    byId("result").replaceChildren(...content());
    for (const url of old) URL.revokeObjectURL(url);
  };
  const picture = (file) => {
    const image = new Image();
    image.src = URL.createObjectURL(file);
    urls.push(image.src);
    image.alt = file.name;
    image.title = file.webkitRelativePath || file.name;
    return image;
  };
  class ApiError extends Error {
    constructor({ code, message, image }) {
      super(message + " (" + code + ")");
      this.image = image;
    }
  }
  const post = async (path, options) => {
    const headers = { ...authorization(), ...options.headers, accept: "application/octet-stream" };
    const response = await fetch(path, { ...options, headers, method: "POST" });
    if (!response.ok) throw new ApiError((await response.json()).error);
    const [rows, width] = response.headers.get("x-embedding-shape").split(",").map(Number);
    const values = new Float32Array(await response.arrayBuffer());
    return Array.from({ length: rows }, (_, row) => values.subarray(row * width, (row + 1) * width));
  };
  const cosine = (a, b) => a.reduce((sum, value, index) => sum + value * b[index], 0);

  let files = [];
  let embedded = [];
  let run = 0;
  // an image that cannot be decoded is left out, and the rest of its request is sent again
  const embedBatch = async (batch, skipped) => {
    while (batch.length > 0) {
      const form = new FormData();
      for (const file of batch) form.append("images", file);
      try {
        const query = "?model=" + encodeURIComponent(model());
        const vectors = await post("${embedPaths.embed}" + query, { body: form });
        return batch.map((file, index) => ({ file, vector: vectors[index] }));
      } catch (error) {
        if (error.image === undefined) throw error;
        skipped.push(batch[error.image].name + " " + error.message);
        batch = batch.filter((_, index) => index !== error.image);
      }
    }
    return [];
  };
  const embedFiles = async () => {
    const own = ++run;
    embedded = [];
    showResult(() => []);
    byId("progress").hidden = files.length === 0;
    byId("progress").max = files.length;
    byId("progress").value = 0;
    const skipped = [];
    const startedAt = performance.now();
    const results = [];
    for (let first = 0; first < files.length; first += ${maxImagesPerRequest}) {
      showMessage("Embedding " + files.length + " images: " + first + " done …");
      results.push(...await embedBatch(files.slice(first, first + ${maxImagesPerRequest}), skipped));
      // another choice of files or of a model has replaced this one
      if (own !== run) return;
      byId("progress").value = first + ${maxImagesPerRequest};
    }
    byId("progress").hidden = true;
    if (files.length === 0) return;
    embedded = results;
    const ms = Math.round(performance.now() - startedAt);
    showMessage(embedded.length + " images in " + ms + " ms, model " + model() + "." + nextStep()
      + (skipped.length > 0 ? " " + skipped.length + " skipped: " + skipped[0] : ""), skipped.length > 0);
    if (byId("text").value && !byId("text").disabled) await search();
    else if (embedded.length <= ${maxTableImages}) showTable();
  };
  const nextStep = () => {
    const search = byId("text").disabled ? "" : ", or search by text";
    if (embedded.length === 0) return "";
    if (embedded.length === 1) return " Choose several images to compare them" + search + ".";
    if (embedded.length > ${maxTableImages}) return " Choose up to ${maxTableImages} images to compare them" + search + ".";
    return " The table shows the cosine of each pair: 1.0000 is the same direction.";
  };
  const showTable = () => {
    showResult(() => {
      const table = create("table", create("caption", "Cosine similarity"));
      table.append(create("tr", create("td"), ...embedded.map(({ file }) => create("th", picture(file)))));
      for (const a of embedded) {
        const cells = embedded.map((b) => create("td", cosine(a.vector, b.vector).toFixed(4)));
        table.append(create("tr", create("th", picture(a.file)), ...cells));
      }
      const scroll = create("div", table);
      scroll.className = "scroll";
      scroll.tabIndex = 0;
      return [scroll];
    });
  };
  const search = async () => {
    const text = byId("text").value.trim();
    if (text === "") return;
    if (embedded.length === 0) {
      showMessage("Choose images first.", true);
      return;
    }
    const body = JSON.stringify({ texts: [text], model: model() });
    const [vector] = await post("${embedPaths.embedText}", { body, headers: { "content-type": "application/json" } });
    const ranked = embedded
      .map(({ file, vector: image }) => ({ file, score: cosine(vector, image) }))
      .sort((a, b) => b.score - a.score);
    showMessage(ranked.length + " images ranked by their cosine to “" + text + "”, model " + model() + ".");
    showResult(() => {
      const list = create("ol");
      for (const { file, score } of ranked.slice(0, ${maxResults})) {
        list.append(create("li", create("figure", picture(file),
          create("figcaption", score.toFixed(4) + " " + file.name))));
      }
      return [list];
    });
  };
  const types = ${JSON.stringify(imageContentTypes)};
  const guarded = (work) => work().catch((error) => showMessage(error.message, true));
  const choose = (list) => {
    const all = [...list];
    files = all.filter(({ type }) => types.includes(type));
    if (files.length === 0 && all.length > 0) {
      showMessage("None of the " + all.length + " files is a JPEG, PNG or WebP file.", true);
      return;
    }
    guarded(embedFiles);
  };
  const selectModel = () => {
    const { dataset } = byId("model").selectedOptions[0];
    const texts = dataset.texts === "true";
    byId("text").disabled = byId("search").disabled = !texts;
    byId("noTexts").hidden = texts;
    if (files.length > 0) guarded(embedFiles);
  };
  byId("model").onchange = selectModel;
  selectModel();
  byId("files").onchange = byId("folder").onchange = (event) => choose(event.target.files);
  byId("searchForm").onsubmit = (event) => {
    event.preventDefault();
    guarded(search);
  };
  byId("drop").ondragover = (event) => { event.preventDefault(); byId("drop").classList.add("over"); };
  byId("drop").ondragleave = () => byId("drop").classList.remove("over");
  byId("drop").ondrop = (event) => {
    event.preventDefault();
    byId("drop").classList.remove("over");
    choose(event.dataTransfer.files);
  };
`;
