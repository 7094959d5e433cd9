// Embeds image files: INFERENCE_SERVICE_URL=http://127.0.0.1:8002 npx tsx embed.ts a.jpg b.jpg
import { readFile } from "node:fs/promises";
import { ClientError, clientOptionsFromEnv, openInferenceClient } from "@clipstack/client";

async function embed(files: readonly string[]): Promise<void> {
  const client = await openInferenceClient(clientOptionsFromEnv(process.env));
  try {
    const embeddings = await client.embed(await Promise.all(files.map((file) => readFile(file))));
    for (const [index, embedding] of embeddings.entries()) {
      const cosine = embedding.reduce((sum, value, i) => sum + value * embeddings[0]![i]!, 0);
      console.log(
        `${files[index]}: ${embedding.length} values, cosine to the first ${cosine.toFixed(3)}`,
      );
    }
  } finally {
    await client.close();
  }
}

await embed(process.argv.slice(2)).catch((error) => {
  if (!(error instanceof ClientError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
});
