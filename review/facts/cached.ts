/** Memoizes a function by its argument. */
export function cached<From extends object, To>(compute: (from: From) => To): (from: From) => To {
  const results = new WeakMap<From, { readonly value: To }>();
  return (from) => {
    const result = results.get(from) ?? { value: compute(from) };
    results.set(from, result);
    return result.value;
  };
}
