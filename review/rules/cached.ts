/** Memoizes a function by its argument. */
export function cached<From extends object, To>(compute: (from: From) => To): (from: From) => To {
  const known = new WeakMap<From, { readonly value: To }>();
  return (from) => {
    const before = known.get(from);
    if (before !== undefined) return before.value;
    const value = compute(from);
    known.set(from, { value });
    return value;
  };
}
