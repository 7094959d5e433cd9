// Review page, one group at a time. Text is never inserted as HTML, because a file name may contain markup.

const element = (id) => document.getElementById(id);

let state;
let group;
/** Index of the selected photo. */
let chosen = 0;
/** Last action; actions run one after the other, even while a key is held down. */
let lastAction = Promise.resolve();

async function request(path, body) {
  const options =
    body === undefined
      ? {}
      : {
          method: "POST",
          headers: { "content-type": "application/json" },
          body: JSON.stringify(body),
        };
  const response = await fetch(path, options);
  const content = await response.json();
  if (!response.ok) throw new Error(content.error ?? `status ${response.status}`);
  return content;
}

/** Runs actions one after the other and shows errors. */
function enqueue(work) {
  lastAction = lastAction.then(work).catch((error) => {
    const offline = error instanceof TypeError;
    showMessage(offline ? "The server of this page has stopped: start it again." : error.message);
  });
  return lastAction;
}

function showMessage(text) {
  element("message").textContent = text;
}

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

const count = (number, one, many) => `${number} ${number === 1 ? one : many}`;

function bytesText(bytes) {
  if (bytes < 1_000_000) return `${(bytes / 1_000).toFixed(1)} kB`;
  return `${(bytes / 1_000_000).toFixed(1)} MB`;
}

function showState() {
  const { groups, decided, photos, rejected, moved, how, weights } = state;
  const parts = [
    count(groups, "group", "groups"),
    `${decided} of ${photos} photos decided`,
    `${rejected} rejected`,
  ];
  element("summary").textContent = parts.join(" · ");
  element("show-move").disabled = rejected === 0;
  element("show-moved").disabled = moved === 0;
  element("show-moved").textContent = `Moved photos (${moved})`;
  element("how").textContent = how === "" ? "" : `Grouped by ${how}.`;
  element("notice").hidden = weights !== "random";
}

function showGroup() {
  const list = element("photos");
  const none = group === undefined;
  element("previous").disabled = none || group.position === 0;
  element("next").disabled = none || group.position + 1 >= state.groups;
  element("accept").disabled = none || group.keeper === undefined;
  if (none) {
    element("title").textContent =
      "There are no groups: run clipstack-dedupe group, or no photos are similar.";
    list.replaceChildren();
    return;
  }
  element("title").textContent =
    `Group ${group.position + 1} of ${state.groups}, ${group.photos.length} photos`;
  list.replaceChildren(...group.photos.map(photoCard));
  showChosen(false);
}

function photoCard(photo, index) {
  const { differs, keeper } = group;
  const away = photo.state !== "present";
  const image = make("img", {
    src: `/thumbnails/${photo.id}?${photo.version}`,
    alt: `${photo.name} in ${photo.folder}`,
    loading: "lazy",
  });
  image.addEventListener("error", () => image.replaceWith("The photo cannot be read."), {
    once: true,
  });
  const picture = make("button", { type: "button", className: "picture" }, image);
  picture.addEventListener("click", () => {
    choose(() => index);
    openLarge();
  });
  const facts = make("dl");
  for (const [name, value, different] of [
    ["Size", bytesText(photo.bytes), differs.size],
    ["Resolution", `${photo.width} × ${photo.height}`, differs.resolution],
    ["Taken", photo.takenAt?.replace("T", " ") ?? "unknown", differs.taken],
    ["Format", photo.format.toUpperCase(), differs.format],
  ]) {
    facts.append(
      make("dt", { textContent: name }),
      make("dd", { textContent: value, className: different ? "differs" : "" }),
    );
  }
  const card = make(
    "li",
    { className: `photo ${photo.decision ?? ""} ${away ? "away" : ""}` },
    picture,
    make(
      "p",
      { className: "name" },
      photo.name,
      make("span", {
        className: "folder",
        textContent: photo.folder === "." ? "" : ` in ${photo.folder}`,
      }),
    ),
    facts,
  );
  if (photo.identical > 0) {
    const copies = count(photo.identical, "other file", "other files");
    card.append(make("p", { className: "folder", textContent: `${copies} with the same bytes` }));
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
    const button = (decision, text) => {
      const node = make("button", {
        type: "button",
        className: `${decision}-button`,
        textContent: text,
      });
      node.setAttribute("aria-pressed", String(photo.decision === decision));
      node.setAttribute("aria-label", `${text} ${photo.name} in ${photo.folder}`);
      node.addEventListener("click", () => {
        choose(() => index);
        decideChosen(decision);
      });
      return node;
    };
    card.append(
      make("div", { className: "choices" }, button("keep", "Keep"), button("reject", "Reject")),
    );
  }
  return card;
}

/** Queued like every action, so that the next key applies to the newly selected photo. */
const choose = (select) =>
  enqueue(() => {
    if (group === undefined) return;
    chosen = Math.max(0, Math.min(group.photos.length - 1, select(chosen)));
    showChosen(true);
    if (element("large").open) showLarge();
  });

function showChosen(scroll) {
  for (const [index, card] of [...element("photos").children].entries()) {
    card.classList.toggle("chosen", index === chosen);
    if (index === chosen) card.setAttribute("aria-current", "true");
    else card.removeAttribute("aria-current");
    if (index === chosen && scroll) card.scrollIntoView({ block: "nearest" });
  }
}

async function goTo(position, keepChosen = false) {
  group = state.groups === 0 ? undefined : await request(`/api/groups/${position}`);
  if (!keepChosen) chosen = 0;
  history.replaceState(null, "", `#${position + 1}`);
  showGroup();
}

const move = (step) =>
  enqueue(async () => {
    const position = (group?.position ?? 0) + step;
    if (position < 0 || position >= state.groups) return;
    await goTo(position);
    showMessage("");
  });

/** Restores the focus after the buttons have been recreated. */
async function redraw() {
  const active = document.activeElement;
  const card = active?.closest(".photo");
  const index = card ? [...element("photos").children].indexOf(card) : -1;
  const kind = ["keep-button", "reject-button", "picture"].find((name) =>
    active?.classList.contains(name),
  );
  await goTo(group.position, true);
  showState();
  if (index >= 0 && kind) element("photos").children[index]?.querySelector(`.${kind}`)?.focus();
}

async function decideAll(decisions, text) {
  state = await request("/api/decisions", { decisions });
  await redraw();
  showMessage(text);
}

const decideChosen = (decision) =>
  enqueue(async () => {
    const photo = group?.photos[chosen];
    if (photo?.state !== "present") return;
    const next = photo.decision === decision ? null : decision;
    const done = next === null ? "undecided" : next === "keep" ? "kept" : "rejected";
    await decideAll([{ photo: photo.id, decision: next }], `${photo.name}: ${done}`);
  });

const acceptSuggestion = () =>
  enqueue(async () => {
    if (group?.keeper === undefined) return;
    const decisions = group.photos
      .filter((photo) => photo.state === "present")
      .map((photo) => ({
        photo: photo.id,
        // never overrides a photo kept manually
        decision: photo.id === group.keeper.id || photo.decision === "keep" ? "keep" : "reject",
      }));
    await decideAll(decisions, "Suggestion accepted");
  });

const openLarge = () =>
  enqueue(() => {
    if (group?.photos[chosen] === undefined) return;
    showLarge();
    if (!element("large").open) element("large").showModal();
  });

function showLarge() {
  const photo = group.photos[chosen];
  const image = element("large-image");
  image.src = `/photos/${photo.id}?${photo.version}`;
  image.alt = `${photo.name} in ${photo.folder}`;
  element("large-name").textContent =
    `${photo.name} in ${photo.folder}, ${photo.width} × ${photo.height}, ${bytesText(photo.bytes)}`;
}

const openMove = () =>
  enqueue(async () => {
    // decisions may have changed in another window
    state = await request("/api/state");
    showState();
    if (state.rejected === 0) return;
    element("move-text").textContent =
      `${count(state.rejected, "photo is", "photos are")} moved into the folder of rejected photos. ` +
      "Nothing is deleted: restore them from the list of moved photos.";
    element("move-warning").hidden = state.emptied === 0;
    element("move-warning").textContent =
      `No photo remains of ${count(state.emptied, "group", "groups")}.`;
    element("move").showModal();
  });

const moveRejected = () =>
  enqueue(async () => {
    element("move").close();
    // only the confirmed number: another window may have rejected others since
    const { rejected } = state;
    const { moved, problems, state: next } = await request("/api/move-rejected", { rejected });
    state = next;
    await redraw();
    showMoveResult(`${count(moved, "photo", "photos")} moved.`, problems);
  });

function showMoveResult(text, problems) {
  const messages = problems.slice(0, 5).map(({ path, problem }) => `${path}: ${problem}`);
  showMessage([text, ...messages].join(" "));
}

const openMoved = () =>
  enqueue(async () => {
    await showMoved();
    if (!element("moved").open) element("moved").showModal();
  });

async function showMoved() {
  const { photos } = await request("/api/moved");
  const more = state.moved - photos.length;
  element("moved-text").textContent = more > 0 ? `The first ${photos.length} are listed.` : "";
  element("restore-all").disabled = photos.length === 0;
  element("moved-list").replaceChildren(
    ...photos.map(({ id, name, movedTo }) => {
      const button = make("button", { type: "button", textContent: "Restore" });
      button.setAttribute("aria-label", `Restore ${name}`);
      button.addEventListener("click", () => restore({ photo: id }));
      return make("li", {}, make("span", { textContent: name, title: movedTo }), button);
    }),
  );
}

const restore = (photos) =>
  enqueue(async () => {
    const { moved, problems, state: next } = await request("/api/restore", photos);
    state = next;
    await showMoved();
    await redraw();
    if (state.moved === 0) element("moved").close();
    showMoveResult(`${count(moved, "photo", "photos")} restored.`, problems);
  });

const keys = {
  ArrowLeft: () => choose((index) => index - 1),
  ArrowRight: () => choose((index) => index + 1),
  k: () => decideChosen("keep"),
  r: () => decideChosen("reject"),
  a: acceptSuggestion,
  n: () => move(1),
  p: () => move(-1),
  o: openLarge,
  m: openMove,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || group === undefined) return;
  const key = event.key.length === 1 ? event.key.toLowerCase() : event.key;
  if (element("large").open) {
    if (key !== "ArrowLeft" && key !== "ArrowRight") return;
    keys[key]();
  } else if (document.querySelector("dialog[open]") === null && Object.hasOwn(keys, key)) {
    keys[key]();
  } else return;
  event.preventDefault();
});

element("next").addEventListener("click", () => move(1));
element("previous").addEventListener("click", () => move(-1));
element("accept").addEventListener("click", acceptSuggestion);
element("show-move").addEventListener("click", openMove);
element("move-now").addEventListener("click", moveRejected);
element("show-moved").addEventListener("click", openMoved);
element("restore-all").addEventListener("click", () => restore({}));
for (const button of document.querySelectorAll("dialog .close")) {
  button.addEventListener("click", () => button.closest("dialog").close());
}

enqueue(async () => {
  state = await request("/api/state");
  const position = Number(location.hash.slice(1)) - 1;
  const exists = Number.isInteger(position) && position >= 0 && position < state.groups;
  await goTo(exists ? position : 0);
  showState();
});
