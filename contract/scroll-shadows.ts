/**
 * CSS declarations of a box whose content scrolls sideways: a shadow at an edge shows that content is hidden there. The first two layers
 * scroll with the content and cover the shadows at its ends.
 *
 * @param background - Colour behind the box.
 */
export function scrollShadows(background: string): string {
  const shade = "color-mix(in srgb, currentColor 32%, transparent)";
  const layer = (side: string, from: string, size: string, attachment: string) =>
    `linear-gradient(to ${side === "left" ? "right" : "left"}, ${from}, transparent) ${side} / ${size} no-repeat ${attachment}`;
  const layers = [
    layer("left", `${background} 40%`, "48px calc(100% + 8px)", "local"),
    layer("right", `${background} 40%`, "48px calc(100% + 8px)", "local"),
    layer("left", shade, "18px 100%", "scroll"),
    layer("right", shade, "18px 100%", "scroll"),
  ];
  return `overflow-x: auto; background: ${layers.join(", ")};`;
}
