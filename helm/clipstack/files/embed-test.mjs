// `helm test`: sends an image to the embed server and checks the embedding. Runs in the embed image, which has Node.
const { EMBED_URL: url, API_KEY: key } = process.env;
// 16×16 pixels, PNG
const image = Buffer.from(
  "iVBORw0KGgoAAAANSUhEUgAAABAAAAAQCAIAAACQkWg2AAAACXBIWXMAAAPoAAAD6AG1e1JrAAABlklEQVQozxXRURVEIQhFUSMYgQhGMAIRiGCEE8EIRiACEYhABCLMG7/ZrMt1jMEcyGAN9kAHNjgDBnfwBj6IQQ5q0IMxJnMikzXZE53Y5EyY3Mmb+CQmOalJzw8IUxBhCVtQwYQjIFzhCS6EkEIJLR9YzIUs1mIvdGGLs2BxF2/hi1jkoha9PrCZG9mszd7oxjZnw+Zu3sY3sclNbXp/QJmKKEvZiiqmHAXlKk9xJZRUSmn9gDENMZaxDTXMOAbGNZ7hRhhplNH2gcM8yGEd9kEPdjgHDvfwDn6IQx7q0OcD/wK/Sr4jv9hfkG/1N/x/Fx44BCQU9Pc94zIvclmXfdGLXc79j9/Lu/glLnmpS98PPOZDHuuxH/qwx3n/5ffxHv6IRz7q0e8DznTEWc521DHn+D/KdZ7jTjjplNP+gWAGEqxgBxpYcOIf/AYv8CCCDCro+EAyE0lWshNNLDn5P/MmL/Ekkkwq6fxAMQspVrELLaw49S/lFq/wIoosquj6QDMbaVazG22sOf2v8Dav8SaabKrp5geIAnAQ3qbGcgAAAABJRU5ErkJggg==",
  "base64",
);

const failure = await check().catch((error) => `${url}: ${error.cause?.message ?? error.message}`);
if (failure === undefined) console.log(`${url} returned 512 finite values`);
else console.error(failure);
process.exitCode = failure === undefined ? 0 : 1;

/** Error in the response, on one line. */
async function check() {
  const response = await fetch(`${url}/embed`, {
    method: "POST",
    headers: { "content-type": "image/png", ...(key && { authorization: `Bearer ${key}` }) },
    body: image,
    signal: AbortSignal.timeout(30_000),
  });
  const text = await response.text();
  if (!response.ok) return `${url}/embed returned ${response.status}: ${text.slice(0, 300)}`;
  const { embeddings } = JSON.parse(text);
  if (embeddings?.length !== 1) return `expected one embedding, got ${text.slice(0, 300)}`;
  const [values] = embeddings;
  if (values.length !== 512) return `expected 512 values, got ${values.length}`;
  const invalid = values.findIndex((value) => !Number.isFinite(value));
  if (invalid >= 0) return `value ${invalid} must be a finite number, got ${values[invalid]}`;
  const norm = Math.hypot(...values);
  return Math.abs(norm - 1) < 0.001
    ? undefined
    : `the norm of the embedding must be 1, got ${norm}`;
}
