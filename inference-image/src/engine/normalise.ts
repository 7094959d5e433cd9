/**
 * Scale a vector to unit L2 norm, in place. A vector of zeros stays as it is: it has no direction.
 *
 * @returns The same array.
 */
export function normaliseInPlace(vector: Float32Array): Float32Array {
  let squares = 0;
  for (const value of vector) squares += value * value;
  const norm = Math.sqrt(squares);
  if (norm > 0) {
    for (let index = 0; index < vector.length; index++) vector[index]! /= norm;
  }
  return vector;
}
