/** Bodies with captions of the lengths that image search receives: 3 to 60 token ids. */
export const textRequests: readonly { readonly texts: readonly [string] }[] = [
  "a dog",
  "sunset at the beach",
  "a photo of two children playing football in a park in autumn",
  "red bicycle leaning against a brick wall",
  "an old map of the city centre, with the harbour, the railway station and the names of all streets in small handwriting, " +
    "photographed from above on a wooden table next to a cup of coffee and a pair of glasses",
  "receipt of a restaurant, 1999",
  "mountains, snow, blue sky",
  "寺の写真",
].map((text) => ({ texts: [text] }));
