/** A name as a terminal may show it: a file can be called anything, a new line or a terminal's commands included. */
export function shownName(name: string): string {
  return name.replace(unshowable, escaped);
}

/** JSON as a terminal may show it: of what a terminal acts on, `JSON.stringify` leaves some in names as they are. */
export function shownJson(value: unknown): string {
  return JSON.stringify(value, null, 2).replace(unshowable, (character) =>
    character === "\n" ? character : escaped(character),
  );
}

const unshowable = /\p{Cc}|[\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu;

function escaped(character: string): string {
  const short = { "\n": "\\n", "\r": "\\r", "\t": "\\t" }[character];
  return short ?? `\\u${character.charCodeAt(0).toString(16).padStart(4, "0")}`;
}
