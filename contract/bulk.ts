/** Types of the values in the table of a bulk job. */
export const vectorTypes = ["float32", "float16"] as const;
export type VectorType = (typeof vectorTypes)[number];
