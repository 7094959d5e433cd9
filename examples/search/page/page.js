// Search page. Text is never inserted as HTML, because a file name may contain markup.

const element = (id) => document.getElementById(id);

async function search(query, request) {
  element("message").textContent = "Searching …";
  try {
    const response = await request;
    const { hits, error } = await response.json();
    if (error !== undefined) throw new Error(error);
    element("hits").replaceChildren(...hits.map(card));
    element("message").textContent = `${hits.length} images, most similar to ${query} first`;
  } catch (error) {
    element("hits").replaceChildren();
    element("message").textContent = error.message;
  }
}

function card({ uri, cosine }) {
  const item = document.createElement("li");
  const image = document.createElement("img");
  image.src = `/image?uri=${encodeURIComponent(uri)}`;
  image.alt = "";
  // only files of this machine are shown
  image.addEventListener("error", () => image.remove(), { once: true });
  item.append(image, `${cosine.toFixed(3)} ${uri}`);
  return item;
}

element("search").addEventListener("submit", (event) => {
  event.preventDefault();
  element("image").value = "";
  const { value } = element("text");
  search(`'${value}'`, fetch(`/api/search?text=${encodeURIComponent(value)}`));
});

element("image").addEventListener("change", ({ target }) => {
  const [file] = target.files;
  if (file === undefined) return;
  element("text").value = "";
  const headers = { "content-type": file.type };
  search(file.name, fetch("/api/search", { method: "POST", headers, body: file }));
});
