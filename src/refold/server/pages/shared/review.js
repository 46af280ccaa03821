// The review of all changes: since the conversation began, a message, or a commit. A tree of the
// files, their changed lines one below the other or side by side, comments on lines, which
// become a message, and undoing one file. Lines are read when a file comes into sight.

import * as api from "./api.js";
import { ask } from "./dialogs.js";
import { fill, h, icon, iconButton } from "./dom.js";
import { onOneLine } from "./escape.js";
import { generatedFolder } from "./generated.js";
import { Comments } from "./review_comments.js";
import { sourceOf } from "./review_source.js";
import { reviewTable } from "./review_table.js";
import { logItems } from "./reducer.js";

const VIEW_KEY = "refold-review";
const MAX_FILES = 1500; // that are drawn
const MAX_ROWS = 1500; // of one file, before it is asked for more
const MAX_POINTS = 20; // messages to choose from
const BATCH = 20; // files whose lines are read at once
const NARROW = "(max-width: 899px)";
const KINDS = { created: "A", changed: "M", deleted: "D" };

export class Review {
  /** `page` has conversation, composer, order(order), say(text) and tried(promise). */
  constructor(page, texts) {
    this.page = page;
    this.texts = texts;
    this.t = texts.review;
    this.beginReading = api.readings();
    this.dialog = null;
  }

  async open() {
    const { t } = this;
    this.id = this.page.conversation.id;
    this.source = sourceOf(this.page.conversation);
    this.comments = new Comments(this.id);
    this.showsGenerated = false;
    this.since = h("select", { on: { change: () => this.read() } }, h("option", { value: "event 1" }, t.start));
    const side = h("button", {
      type: "button", class: "button", "aria-pressed": String(localStorage.getItem(VIEW_KEY) === "split"),
      on: { click: () => this.turn(side) },
    }, t.split);
    this.side = side;
    this.again = iconButton("retry", t.refresh, () => this.read());
    this.sum = h("p", { class: "review-sum", role: "status" });
    this.tree = h("nav", { class: "review-tree", "aria-label": t.files });
    this.list = h("div", { class: "review-files", tabindex: "0", role: "region", "aria-label": t.changes });
    this.footer = h("footer", { class: "review-foot" });
    this.near = new IntersectionObserver((seen) => this.seen(seen), { root: this.list, rootMargin: "600px 0px" });
    const dialog = h("dialog", { class: "review", "aria-label": t.title, on: { close: () => this.closed() } },
      h("header", { class: "review-head" }, h("h2", {}, t.title), h("label", { class: "review-since" }, h("span", {}, t.since), this.since),
        this.sum, h("span", { class: "room" }), side, this.again, iconButton("close", this.texts.close, () => dialog.close())),
      h("div", { class: "review-body" }, this.tree, this.list), this.footer);
    this.dialog = dialog;
    document.body.append(dialog);
    dialog.showModal();
    this.narrow = matchMedia(NARROW);
    this.narrow.addEventListener("change", this.redraw);
    this.showComments();
    await Promise.all([this.read(), this.offer()]);
  }

  redraw = () => this.draw();

  closed() {
    this.narrow.removeEventListener("change", this.redraw);
    this.near.disconnect();
    this.dialog.remove();
    this.dialog = null;
  }

  /** Files have changed: what is drawn stays, so that a comment that is being written is not lost. */
  filesChanged() {
    if (!this.dialog || this.again.classList.contains("is-due")) return;
    this.again.classList.add("is-due");
    this.page.say(this.t.changed);
  }

  // What it is compared with.

  async offer() {
    const { t } = this;
    const said = logItems(this.page.conversation.screen.done).filter((b) => b.kind === "heard" && b.sender === "person" && !b.rewound);
    const messages = said.slice(-MAX_POINTS).reverse().map((block, n) =>
      h("option", { value: `event ${block.seq}` }, `${n ? "" : `${t.last}: `}${excerpt(block.said)}`));
    const commits = await this.source.commits().catch(() => []);
    if (!this.dialog) return;
    const group = (label, options) => (options.length ? h("optgroup", { label }, options) : null);
    this.since.append(...[group(t.messages, messages), group(t.commits, commits.map((commit) =>
      h("option", { value: `commit ${commit.name}` }, `${commit.name.slice(0, 8)} ${excerpt(commit.subject)}`)))].filter(Boolean));
  }

  point() {
    const [kind, value] = this.since.value.split(" ");
    return { kind, value };
  }

  async read() {
    const isNewest = this.beginReading();
    const isLast = () => this.dialog && isNewest();
    this.again.classList.remove("is-due");
    this.dialog.setAttribute("aria-busy", "true");
    try {
      const files = await this.source.list(this.point());
      if (!isLast()) return;
      this.files = flat(nested(files));
      this.lines = new Map();
      this.draw();
    } catch (error) {
      if (isLast()) fill(this.list, h("p", { class: "problem", role: "alert" }, this.texts.dialogFailed(error.message)));
    } finally {
      if (isLast()) this.dialog.removeAttribute("aria-busy");
    }
  }

  // What it shows.

  get split() {
    return this.side.getAttribute("aria-pressed") === "true" && !this.narrow.matches;
  }

  turn(side) {
    const on = side.getAttribute("aria-pressed") !== "true";
    side.setAttribute("aria-pressed", String(on));
    localStorage.setItem(VIEW_KEY, on ? "split" : "");
    this.draw();
  }

  draw() {
    if (!this.files) return;
    const { t } = this;
    const folded = this.showsGenerated ? [] : this.files.filter(({ path }) => generatedFolder(path));
    const files = folded.length ? this.files.filter(({ path }) => !generatedFolder(path)) : this.files;
    const drawn = files.slice(0, MAX_FILES);
    const total = (name) => files.reduce((sum, file) => sum + (file[name] ?? 0), 0);
    fill(this.sum, files.length ? [t.count(files.length), " ", counts(total("added"), total("removed"))] : null);
    this.near.disconnect();
    this.sections = new Map(drawn.map((file) => [file.path, this.section(file)]));
    const gone = this.comments.all().filter((comment) => !this.sections.has(comment.path));
    fill(this.list, this.source.canUndo ? null : h("p", { class: "empty" }, t.recorded), this.files.length ? null : h("p", { class: "empty" }, t.none), gone.map((comment) => this.note(comment, true)),
      [...this.sections.values()], files.length > drawn.length ? h("p", { class: "empty" }, t.notDrawn(files.length - drawn.length)) : null,
      folded.length ? this.generated(folded) : null);
    fill(this.tree, files.length ? this.branch(nested(drawn)) : null);
    for (const section of this.sections.values()) this.near.observe(section);
  }

  /** One line for the files that programs made, which hardly anybody reviews. */
  generated(files) {
    const names = [...new Set(files.map(({ path }) => generatedFolder(path)))].sort();
    return h("button", { type: "button", class: "button quiet review-generated", on: { click: () => {
      this.showsGenerated = true;
      this.draw();
      this.list.focus();
    } } }, this.t.generated(files.length, names.join(", ")));
  }

  branch({ folders, files }) {
    return h("ul", {}, [...folders].map(([name, below]) => h("li", {},
      h("span", { class: "review-folder" }, icon("folder"), onOneLine(name)), this.branch(below))),
    files.map((file) => h("li", {}, h("button", {
      type: "button", class: `review-name is-${file.kind}`, on: { click: () => this.show(file.path) },
    }, h("span", { class: "review-kind", "aria-hidden": "true" }, KINDS[file.kind]), h("span", { class: "review-file" }, onOneLine(file.path.split("/").at(-1))),
    h("span", { class: "unseen" }, ` ${this.texts[file.kind]} `), counts(file.added, file.removed)))));
  }

  show(path) {
    const section = this.sections.get(path);
    this.fold(section, true);
    section.scrollIntoView({ block: "start" });
    section.querySelector(".review-fold").focus({ preventScroll: true });
  }

  section(file) {
    const { t } = this;
    const body = h("div", { class: "review-lines" });
    const undo = this.source.canUndo && this.since.value.startsWith("event") && !this.page.conversation.readOnly
      ? h("button", { type: "button", class: "button quiet", "aria-label": t.undo, title: t.undo, on: { click: () => this.undo(file) } },
        icon("undo"), h("span", {}, t.undo)) : null;
    const fold = h("button", { type: "button", class: "review-fold", "aria-expanded": "true", on: { click: () => this.fold(section, body.hidden) } },
      h("span", { class: "review-path" }, onOneLine(file.path)), h("span", { class: `tag is-${file.kind}` }, this.texts[file.kind]), counts(file.added, file.removed));
    const section = h("section", { class: "review-section", "aria-label": onOneLine(file.path) }, h("div", { class: "review-file-head" }, fold, undo), body);
    Object.assign(section, { path: file.path, body });
    body.style.minHeight = `${Math.min(40, 2 + (file.added ?? 0) + (file.removed ?? 0)) * 1.4}rem`;
    return section;
  }

  fold(section, open) {
    section.body.hidden = !open;
    section.querySelector(".review-fold").setAttribute("aria-expanded", String(open));
    if (open) this.fetch([section.path]);
  }

  seen(entries) {
    const paths = entries.filter((entry) => entry.isIntersecting && !entry.target.body.hidden).map((entry) => entry.target.path);
    for (let at = 0; at < paths.length; at += BATCH) this.fetch(paths.slice(at, at + BATCH));
  }

  /** Read the lines of these files, once, and show them. */
  async fetch(paths) {
    const { lines } = this;
    const wanted = paths.filter((path) => !lines.has(path));
    for (const path of wanted) lines.set(path, null);
    try {
      const rows = wanted.length ? await this.source.lines(this.point(), wanted) : [];
      for (const path of wanted) lines.set(path, rows.find((row) => row.path === path) ?? { path, text: "" });
    } catch (error) {
      for (const path of wanted) lines.delete(path);
      this.page.say(this.texts.dialogFailed(error.message));
    }
    if (!this.dialog || lines !== this.lines) return;
    for (const path of paths) if (lines.get(path)) this.fillSection(path);
  }

  fillSection(path) {
    const section = this.sections.get(path);
    if (!section || section.dataset.filled) return;
    section.dataset.filled = "yes";
    section.body.style.minHeight = "";
    this.fillLines(section.body, this.lines.get(path), MAX_ROWS);
  }

  fillLines(body, { path, text, cut }, limit) {
    const { t } = this;
    if (!text) return void fill(body, h("p", { class: "empty" }, t.noText));
    const comments = this.comments.of(path);
    const { element, hidden, anchors } = reviewTable(text, { split: this.split, limit, labels: { ...this.texts.lines, comment: t.comment } }, (place, row) => this.write(path, place, row));
    const placed = new Set();
    for (const comment of comments) {
      const anchor = anchors.get(`${comment.side} ${comment.line}`);
      if (anchor?.text !== comment.text) continue;
      placed.add(comment);
      anchor.row.after(wide(this.note(comment), anchor.row));
    }
    fill(body, comments.filter((comment) => !placed.has(comment)).map((comment) => this.note(comment, true)), element,
      hidden ? h("button", { type: "button", class: "button quiet", on: { click: () => this.fillLines(body, { path, text, cut }, Infinity) } }, t.more(hidden)) : null,
      cut ? h("p", { class: "empty" }, t.cut) : null);
  }

  // Comments.

  write(path, place, row, comment = null) {
    const { t } = this;
    const area = h("textarea", { rows: "2", "aria-label": t.commentOn(place.line), maxlength: "4000" }, comment?.words ?? "");
    area.value = comment?.words ?? "";
    const editor = wide(h("form", { class: "review-comment", on: { submit: (event) => { event.preventDefault(); save(); } } }, area,
      h("div", { class: "actions" }, h("button", { type: "submit", class: "button primary" }, this.texts.save),
        h("button", { type: "button", class: "button quiet", on: { click: () => done() } }, this.texts.cancel))), row);
    const done = (words = comment?.words) => {
      if (words) {
        const next = { path, ...place, words };
        this.comments.put(next, comment);
        editor.replaceWith(wide(this.note(next), row));
        this.showComments();
      } else editor.remove();
      row.querySelector("button")?.focus();
    };
    const save = () => done(area.value.trim() || undefined);
    area.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.preventDefault(); // it closes the comment, and not the review
        event.stopPropagation();
        done();
      } else if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        save();
      }
    });
    row.after(editor);
    area.focus();
  }

  note(comment, lost = false) {
    const { t } = this;
    const note = h("div", { class: "review-note" },
      lost ? h("p", { class: "review-quote" }, `${onOneLine(comment.path)}:${comment.line} `, h("code", {}, onOneLine(comment.text))) : null,
      h("p", {}, comment.words), h("span", { class: "tools" },
        lost ? null : iconButton("pencil", t.editComment, () => {
          const row = note.closest("tr");
          const before = row.previousElementSibling;
          row.remove();
          this.write(comment.path, { side: comment.side, line: comment.line, text: comment.text }, before, comment);
        }),
        iconButton("close", t.removeComment, () => {
          this.comments.drop(comment);
          (note.closest("tr") ?? note).remove();
          this.showComments();
        })));
    return note;
  }

  showComments() {
    const { t } = this;
    const every = this.comments.all();
    this.footer.hidden = !every.length;
    fill(this.footer, h("span", { role: "status" }, t.comments(every.length)), h("span", { class: "room" }),
      h("button", { type: "button", class: "button primary", on: { click: () => this.finish(every) } }, t.use));
  }

  /** The comments stand in the message box, where they can be changed before they are sent. */
  finish(comments) {
    const { composer } = this.page;
    composer.putBack(this.t.message(comments));
    this.comments.clear();
    this.dialog.close();
    composer.text.focus();
  }

  // Undo.

  async undo(file) {
    const { t } = this;
    const force = h("input", { type: "checkbox" });
    const done = await ask({
      title: t.undoTitle(onOneLine(file.path)), texts: this.texts, action: t.undo, danger: true,
      body: [h("p", {}, t.undoQuestion[file.kind]), h("label", { class: "check" }, force, h("span", {}, this.texts.rewindForce))],
      submit: () => this.page.order({ type: "rewind", to: file.event, what: "files", only: [file.path], force: force.checked }).then(() => true),
    });
    if (!done || !this.dialog) return;
    this.page.say(t.undone(file.path));
    await this.read();
  }
}

/** Return a row with one cell over all columns of the table of `row`. */
function wide(element, row) {
  return h("tr", { class: "review-wide" }, h("td", { colspan: String(row.closest("table").querySelectorAll("col").length) }, element));
}

function counts(added, removed) {
  if (added === null || added === undefined) return null;
  return h("span", { class: "review-counts" }, h("span", { class: "plus" }, `+${added}`), " ", h("span", { class: "minus" }, `−${removed}`));
}

function excerpt(text) {
  const line = onOneLine((text ?? "").replace(/\s+/g, " ").trim());
  return line.length > 60 ? `${line.slice(0, 60)}…` : line;
}

/** Return files as a tree: {folders, files}. A folder with only one folder is joined with it. Pure. */
export function nested(files) {
  const root = { folders: new Map(), files: [] };
  for (const file of files) {
    let at = root;
    for (const name of file.path.split("/").slice(0, -1)) {
      if (!at.folders.has(name)) at.folders.set(name, { folders: new Map(), files: [] });
      at = at.folders.get(name);
    }
    at.files.push(file);
  }
  return joined(root);
}

const flat = ({ folders, files }) => [...[...folders.values()].flatMap(flat), ...files];

function joined({ folders, files }) {
  const below = [...folders].map(([name, folder]) => {
    let [path, at] = [name, folder];
    while (!at.files.length && at.folders.size === 1) {
      const [[next, only]] = at.folders;
      [path, at] = [`${path}/${next}`, only];
    }
    return [path, joined(at)];
  });
  return { folders: new Map(below), files };
}
