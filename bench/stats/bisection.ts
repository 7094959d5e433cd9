/** Argument at which a monotonic function has a value, by bisection; the nearer end if there is none. */
export function solve(
  target: number,
  [low, high]: readonly [number, number],
  value: (x: number) => number,
): number {
  const rising = value(high) > value(low);
  let [a, b] = [low, high];
  for (let step = 0; step < 50; step++) {
    const middle = (a + b) / 2;
    if (value(middle) < target === rising) a = middle;
    else b = middle;
  }
  return (a + b) / 2;
}
