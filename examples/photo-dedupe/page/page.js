// Review page, one group at a time.

import { bytesText, count, make, pairTable, photoCard, showSimilarities } from "./photo-card.js";

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

function showState() {
  const { groups, decided, photos, rejected, moved, how, weights } = state;
  const parts = [
    count(groups, "group", "groups"),
    `${decided.toLocaleString("en")} of ${count(photos, "photo", "photos")} decided`,
    `${rejected.toLocaleString("en")} rejected`,
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
  for (const id of ["next-undecided", "position", "go", "show-copies"]) element(id).disabled = none;
  element("pages").hidden = none || group.pages === 1;
  element("pairs").hidden = none || group.photos.length < 2;
  element("pairs").open = false;
  if (none) {
    element("title").textContent =
      "There are no groups: run clipstack-dedupe group, or no photos are similar.";
    list.replaceChildren();
    return;
  }
  const { position, page, pages, first, count: total, photos } = group;
  element("title").textContent =
    `Group ${(position + 1).toLocaleString("en")} of ${state.groups.toLocaleString("en")}, ${count(total, "photo", "photos")}`;
  element("position").max = state.groups;
  element("page-title").textContent =
    `Photos ${first.toLocaleString("en")} to ${(first + photos.length - 1).toLocaleString("en")} of ${total.toLocaleString("en")}`;
  element("previous-page").disabled = page === 0;
  element("next-page").disabled = page + 1 >= pages;
  list.replaceChildren(...photos.map((_, index) => photoCard(group, index, cardActions)));
  showChosen(false);
}

const cardActions = {
  open(index) {
    choose(() => index);
    openLarge();
  },
  decide(index, decision) {
    choose(() => index);
    decideChosen(decision);
  },
};

/** Queued like every action, so that the next key applies to the newly selected photo. */
const choose = (select) =>
  enqueue(async () => {
    if (group === undefined) return;
    const next = select(chosen);
    const { page, pages, photos } = group;
    if (next < 0 && page > 0) await goTo(group.position, { page: page - 1, last: true });
    else if (next >= photos.length && page + 1 < pages)
      await goTo(group.position, { page: page + 1 });
    else chosen = Math.max(0, Math.min(photos.length - 1, next));
    showChosen(true);
    if (element("large").open) showLarge();
  });

function showChosen(scroll) {
  const cards = [...element("photos").children];
  showSimilarities(group, cards, chosen);
  for (const [index, card] of cards.entries()) {
    card.classList.toggle("chosen", index === chosen);
    if (index === chosen) card.setAttribute("aria-current", "true");
    else card.removeAttribute("aria-current");
    if (index === chosen && scroll) card.scrollIntoView({ block: "nearest" });
  }
}

/** @param options - `last` chooses the last photo of the page, `keepChosen` the same one as before. */
async function goTo(position, { page = 0, last = false, keepChosen = false } = {}) {
  group = state.groups === 0 ? undefined : await request(`/api/groups/${position}?page=${page}`);
  if (last) chosen = group.photos.length - 1;
  else if (!keepChosen) chosen = 0;
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

const movePage = (step) =>
  enqueue(async () => {
    const page = group.page + step;
    if (page >= 0 && page < group.pages) await goTo(group.position, { page });
  });

const goToTyped = () =>
  enqueue(async () => {
    const position = Number(element("position").value) - 1;
    if (!Number.isInteger(position) || position < 0 || position >= state.groups) {
      throw new Error(`The group must be 1 to ${state.groups}.`);
    }
    // the keys apply to the photos again
    document.activeElement?.blur();
    await goTo(position);
    showMessage("");
  });

const goToUndecided = () =>
  enqueue(async () => {
    const { position } = await request(`/api/groups/${group.position}/next-undecided`);
    if (position === null) return showMessage("Every photo is decided.");
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
  await goTo(group.position, { page: group.page, keepChosen: true });
  showState();
  if (index >= 0 && kind) element("photos").children[index]?.querySelector(`.${kind}`)?.focus();
}

const decideChosen = (decision) =>
  enqueue(async () => {
    const photo = group?.photos[chosen];
    if (photo?.state !== "present") return;
    const next = photo.decision === decision ? null : decision;
    const done = next === null ? "undecided" : next === "keep" ? "kept" : "rejected";
    state = await request("/api/decisions", { decisions: [{ photo: photo.id, decision: next }] });
    await redraw();
    showMessage(`${photo.name}: ${done}`);
  });

const acceptSuggestion = () =>
  enqueue(async () => {
    if (group?.keeper === undefined) return;
    state = await request(`/api/groups/${group.position}/accept`, {});
    await redraw();
    showMessage("Suggestion accepted");
  });

const openCopies = () =>
  enqueue(async () => {
    const { copies } = await request("/api/copies");
    if (copies === 0) return showMessage("There are no undecided byte-identical copies.");
    element("copies-text").textContent =
      `${count(copies, "undecided photo is a byte-identical copy", "undecided photos are byte-identical copies")} ` +
      "of another photo that stays. They are rejected, not moved yet.";
    element("accept-copies").value = copies;
    element("copies").showModal();
  });

const acceptCopies = () =>
  enqueue(async () => {
    element("copies").close();
    const copies = Number(element("accept-copies").value);
    state = await request("/api/accept-copies", { copies });
    await redraw();
    showMessage(`${count(copies, "copy", "copies")} rejected.`);
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
    state = await request("/api/rejected");
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
  u: goToUndecided,
  PageUp: () => movePage(-1),
  PageDown: () => movePage(1),
  o: openLarge,
  m: openMove,
};

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || group === undefined) return;
  if (event.target.tagName === "INPUT") return;
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
element("next-undecided").addEventListener("click", goToUndecided);
element("previous-page").addEventListener("click", () => movePage(-1));
element("next-page").addEventListener("click", () => movePage(1));
element("go-to").addEventListener("submit", (event) => {
  event.preventDefault();
  goToTyped();
});
element("pairs").addEventListener("toggle", () => {
  const table = element("pairs").open ? [pairTable(group)] : [];
  element("pair-table").replaceChildren(...table);
});
element("show-copies").addEventListener("click", openCopies);
element("accept-copies").addEventListener("click", acceptCopies);
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
