/** How long to wait before a try: it doubles from `firstMs` to `mostMs`, and half of it is chance, so that many do not come at once. */
export function backoffMs(
  attempt: number,
  { firstMs = 500, mostMs = 30_000, random = Math.random } = {},
): number {
  const whole = Math.min(mostMs, firstMs * 2 ** Math.min(attempt, 30));
  return whole / 2 + (whole / 2) * random();
}
