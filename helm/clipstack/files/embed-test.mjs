// `helm test`: sends an image or a text to each tower and checks the embeddings. Runs in the embed image, which has Node.
const { EMBED_URL: url, API_KEY: key, TOWERS: towers } = process.env;
const authorization = key && { authorization: `Bearer ${key}` };
// 16×16 pixels, PNG
const image = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAACXBIWXMAAAPoAAAD6AG1e1JrAAABlklEQVQozxXRURVEIQhFUSMYgQhGMAIRiGCEE8EIRiACEYhABCLMG7/ZrMt1jMEcyGAN9kAHNjgDBnfwBj6IQQ5q0IMxJnMikzXZE53Y5EyY3Mmb+CQmOalJzw8IUxBhCVtQwYQjIFzhCS6EkEIJLR9YzIUs1mIvdGGLs2BxF2/hi1jkoha9PrCZG9mszd7oxjZnw+Zu3sY3sclNbXp/QJmKKEvZiiqmHAXlKk9xJZRUSmn9gDENMZaxDTXMOAbGNZ7hRhhplNH2gcM8yGEd9kEPdjgHDvfwDn6IQx7q0OcD/wK/Sr4jv9hfkG/1N/x/Fx44BCQU9Pc94zIvclmXfdGLXc79j9/Lu/glLnmpS98PPOZDHuuxH/qwx3n/5ffxHv6IRz7q0e8DznTEWc521DHn+D/KdZ7jTjjplNP+gWAGEqxgBxpYcOIf/AYv8CCCDCro+EAyE0lWshNNLDn5P/MmL/Ekkkwq6fxAMQspVrELLaw49S/lFq/wIoosquj6QDMbaVazG22sOf2v8Dav8SaabKrp5geIAnAQ3qbGcgAAAABJRU5ErkJggg==",
  "base64",
);

/** Request of each modality. */
const requests = {
  image: (model) => ({
    path: `/embed?model=${model}`,
    headers: { "content-type": "image/png" },
    body: image,
  }),
  text: (model) => ({
    path: "/embed/text",
    headers: { "content-type": "application/json" },
    body: JSON.stringify({ model, texts: ["a photo of a dog"] }),
  }),
};

for (const tower of JSON.parse(towers)) {
  const name = `${tower.model}, ${tower.modality}`;
  const failure = await check(tower).catch((error) => error.cause?.message ?? error.message);
  if (failure === undefined) console.log(`${url}: ${name}: ${tower.width} finite values`);
  else {
    console.error(`${url}: ${name}: ${failure}`);
    process.exitCode = 1;
  }
}

/** Error in the response, on one line. */
async function check({ model, modality, width }) {
  const { path, headers, body } = requests[modality](model);
  const response = await fetch(`${url}${path}`, {
    method: "POST",
    headers: { ...headers, ...authorization },
    body,
    signal: AbortSignal.timeout(30_000),
  });
  const text = await response.text();
  if (!response.ok) return `${path} returned ${response.status}: ${text.slice(0, 300)}`;
  const { embeddings } = JSON.parse(text);
  if (embeddings?.length !== 1) return `expected one embedding, got ${text.slice(0, 300)}`;
  const [values] = embeddings;
  if (values.length !== width) return `expected ${width} values, got ${values.length}`;
  const invalid = values.findIndex((value) => !Number.isFinite(value));
  if (invalid >= 0) return `value ${invalid} must be a finite number, got ${values[invalid]}`;
  const norm = Math.hypot(...values);
  return Math.abs(norm - 1) < 0.001
    ? undefined
    : `the norm of the embedding must be 1, got ${norm}`;
}
