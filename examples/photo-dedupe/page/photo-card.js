// Elements of the review page. Text is never inserted as HTML, because a file name may contain markup.

export function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

export const count = (number, one, many) =>
  `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

export function bytesText(bytes) {
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

/** Properties as text, by name. */
const factsOf = ({ bytes, width, height, takenAt, format }) => [
  ["Size", bytesText(bytes)],
  ["Resolution", `${width} × ${height}`],
  ["Taken", takenAt?.replace("T", " ") ?? "unknown"],
  ["Format", format.toUpperCase()],
];

export function similarityText({ cosine, bits }) {
  const different = bits === 0 ? "equal hash" : `hash differs in ${count(bits, "bit", "bits")}`;
  return cosine === null ? different : `${cosine.toFixed(3)}, ${different}`;
}

/** Similarity of two photos of the page, by index. */
export function similarityOf({ pairs }, a, b) {
  return pairs[Math.max(a, b)][Math.min(a, b)];
}

/**
 * @param group - Page of a group, as from the server.
 * @param actions - `open(index)` enlarges a photo, `decide(index, decision)` decides on one.
 */
export function photoCard(group, index, actions) {
  const photo = group.photos[index];
  const { keeper } = group;
  const away = photo.state !== "present";
  const card = make(
    "li",
    { className: `photo ${photo.decision ?? ""} ${away ? "away" : ""}` },
    pictureOf(photo, () => actions.open(index)),
    make(
      "p",
      { className: "name" },
      photo.name,
      make("span", {
        className: "folder",
        textContent: photo.folder === "." ? "" : ` in ${photo.folder}`,
      }),
    ),
    factList(photo, keeper),
    make("p", { className: "similarity" }),
  );
  if (photo.identical > 0) {
    const copies = count(photo.identical, "other file", "other files");
    card.append(make("p", { className: "copies", textContent: `${copies} with the same bytes` }));
  }
  if (keeper?.id === photo.id) {
    card.append(
      make("p", { className: "badge", textContent: `✓ Suggested keeper: ${keeper.reason}` }),
    );
  }
  if (away) {
    const status = photo.state === "moved" ? "Moved." : "File missing.";
    card.append(make("p", { className: "folder", textContent: status }));
  } else {
    const button = (decision, text) =>
      decisionButton(photo, decision, text, () => actions.decide(index, decision));
    card.append(
      make("div", { className: "choices" }, button("keep", "Keep"), button("reject", "Reject")),
    );
  }
  return card;
}

function pictureOf(photo, open) {
  const image = make("img", {
    src: `/thumbnails/${photo.id}?${photo.version}`,
    alt: `${photo.name} in ${photo.folder}`,
    loading: "lazy",
  });
  image.addEventListener("error", () => image.replaceWith("The photo cannot be read."), {
    once: true,
  });
  const picture = make("button", { type: "button", className: "picture" }, image);
  picture.addEventListener("click", open);
  return picture;
}

/** Marks values that differ from those of the suggested keeper, as they are displayed. */
function factList(photo, keeper) {
  const expected = keeper && new Map(factsOf(keeper));
  const facts = make("dl");
  for (const [name, value] of factsOf(photo)) {
    const differs = expected !== undefined && expected.get(name) !== value;
    facts.append(
      make("dt", { textContent: name }),
      make("dd", { textContent: value, className: differs ? "differs" : "" }),
    );
  }
  return facts;
}

function decisionButton(photo, decision, text, decide) {
  const node = make("button", {
    type: "button",
    className: `${decision}-button`,
    textContent: text,
  });
  node.setAttribute("aria-pressed", String(photo.decision === decision));
  node.setAttribute("aria-label", `${text} ${photo.name} in ${photo.folder}`);
  node.addEventListener("click", decide);
  return node;
}

/** Shows the similarity of each photo to the chosen one, and of the chosen one to the suggested keeper. */
export function showSimilarities(group, cards, chosen) {
  for (const [index, card] of cards.entries()) {
    const photo = group.photos[index];
    const isKeeper = group.keeper?.id === photo.id;
    const text =
      index !== chosen
        ? `Similarity to the selected photo: ${similarityText(similarityOf(group, index, chosen))}`
        : isKeeper || !photo.toKeeper
          ? "Selected"
          : `Selected; similarity to the suggested keeper: ${similarityText(photo.toKeeper)}`;
    card.querySelector(".similarity").textContent = text;
  }
}

/** Table with the similarity of each pair of photos of the page. */
export function pairTable(group) {
  const header = (text) => make("th", { textContent: text, scope: "col" });
  const names = group.photos.map(({ name }, i) => `${group.first + i}. ${name}`);
  const head = make("tr", {}, make("td"), ...names.slice(0, -1).map(header));
  const rows = names
    .slice(1)
    .map((name, i) =>
      make(
        "tr",
        {},
        make("th", { textContent: name, scope: "row" }),
        ...group.pairs[i + 1].map((pair) => make("td", { textContent: similarityText(pair) })),
      ),
    );
  return make("table", {}, make("thead", {}, head), make("tbody", {}, ...rows));
}
