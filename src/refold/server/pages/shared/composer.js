// The message box: text, attachments by paste, drop and choice, `/` and `@` suggestions, and while
// a turn runs the choice of when the message is read. What becomes of it is decided by the page, and
// what is attached is kept in `attachments`.

import { Attachments, chosenFolder, compose, isLong, readDrop, TooManyFiles } from "./attachments.js";
import { fill, h, icon, iconButton } from "./dom.js";
import { Drafts, mention, NEW } from "./drafts.js";

const IMAGES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);
const MAX_IMAGE_BYTES = 3_700_000; // what models take
const TALLEST = 240; // pixels
const OFFERED = 8;

export class Composer {
  /**
   * `on` has send({text, images, when}): a promise; stop(), commands(), files(folder): lists
   * of {name, about, folder}, completions(before): what the server offers, upload(files) and uploadFolder({name, files}): promises of the conversation, say(text),
   * command(text): a promise of true if it was one, which rejects where it cannot be run.
   */
  constructor(texts, on) {
    this.texts = texts;
    this.on = on;
    this.running = false;
    this.drafts = new Drafts();
    this.at = NEW;
    this.text = h("textarea", {
      id: "message", rows: "1", placeholder: texts.placeholder, "aria-label": texts.composer,
      "aria-autocomplete": "list", "aria-controls": "suggestions", "aria-haspopup": "listbox",
      on: {
        input: () => this.typed(), keydown: (e) => this.key(e), paste: (e) => this.pasted(e),
        // A click on a suggestion takes the focus, too. Whoever is back by then still types.
        blur: () => setTimeout(() => { if (document.activeElement !== this.text) this.offer([]); }, 120),
      },
    });
    this.list = h("ul", { id: "suggestions", role: "listbox", "aria-label": texts.suggestions, hidden: true });
    this.attachments = new Attachments(texts, {
      changed: () => this.changed(), say: on.say, leave: () => this.text.focus(), unfold: (text) => this.insert(text),
    });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.picker = h("input", {
      type: "file", multiple: true, class: "unseen", tabindex: "-1",
      "aria-label": texts.attach, on: { change: () => this.addFiles([...this.picker.files]) },
    });
    this.folderPicker = h("input", {
      type: "file", webkitdirectory: true, class: "unseen", tabindex: "-1",
      "aria-label": texts.attachFolder, on: { change: () => this.addFolder(() => chosenFolder([...this.folderPicker.files])) },
    });
    this.whenButtons = ["now", "next", "instead"].map((when) => h("label", { class: "when" },
      h("input", { type: "radio", name: "when", value: when, checked: when === "now" }),
      h("span", {}, h("strong", {}, texts[when]), h("small", {}, texts[`${when}About`]))));
    this.when = h("fieldset", { class: "whens", hidden: true },
      h("legend", { class: "unseen" }, texts.when), this.whenButtons);
    this.sendButton = h("button", { type: "submit", class: "round send", "aria-label": texts.send, title: texts.send }, icon("send"));
    this.stopButton = h("button", {
      type: "button", class: "round stop", hidden: true, on: { click: () => on.stop() },
    }, icon("stop"), h("span", {}, texts.stop));
    this.element = h("form", {
      class: "composer", on: {
        submit: (e) => { e.preventDefault(); this.send(); },
        dragover: (e) => { e.preventDefault(); this.element.classList.add("is-over"); },
        dragleave: () => this.element.classList.remove("is-over"),
        drop: (e) => this.dropped(e),
      },
    }, this.problem, this.when, this.list,
    h("div", { class: "box" }, this.attachments.element, this.text,
      h("div", { class: "box-row" }, iconButton("clip", texts.attach, () => this.picker.click()), this.picker,
        iconButton("folder", texts.attachFolder, () => this.folderPicker.click()), this.folderPicker,
        h("span", { class: "drop-note", "aria-hidden": "true" }, texts.dropHere),
        h("span", { class: "room" }), this.stopButton, this.sendButton)));
    this.text.value = this.drafts.get(NEW);
    this.changed();
  }

  /** Set whether a turn runs: then a message can be read now or later, and the turn can be stopped. */
  setRunning(running, enabled = true) {
    this.stopButton.hidden = !running;
    this.when.hidden = !running;
    this.text.disabled = !enabled;
    this.sendButton.disabled = !enabled;
    if (running && !this.running) this.whenButtons[0].querySelector("input").checked = true;
    this.running = running;
  }

  /** Show the draft of this conversation in the box. */
  setConversation(id) {
    if (id === this.at) return;
    this.at = id;
    this.attachments.setConversation(id);
    this.text.value = this.drafts.get(id);
    this.complain("");
    this.changed();
  }

  /** Set the id of the conversation that was new; the text in the box belongs to it. */
  began(id) {
    if (this.at !== NEW) return;
    this.drafts.move(NEW, id);
    this.attachments.began(id);
    this.at = id;
  }

  /** Forget the draft of a deleted conversation. */
  forget(id) {
    this.drafts.set(id, "");
    this.attachments.forget(id);
  }

  setText(text) {
    this.text.value = text;
    this.typed();
    this.text.focus();
  }

  /** Insert text at the cursor, as if it was typed. */
  insert(text) {
    this.text.setRangeText(text, this.text.selectionStart, this.text.selectionEnd, "end");
    this.typed();
    this.text.focus();
  }

  /** Put text behind the draft of a conversation, which may not be the one in the box. */
  add(text, id = this.at) {
    const draft = id === this.at ? this.text.value : this.drafts.get(id);
    const joined = `${draft}${!draft || /\s$/.test(draft) ? "" : " "}${text}`;
    if (id === this.at) this.setText(joined);
    else this.drafts.set(id, joined);
  }

  /** Put a text back into the box, above what was typed meanwhile. */
  putBack(text) {
    this.setText(this.text.value ? `${text}\n${this.text.value}` : text);
  }

  clear() {
    this.text.value = "";
    this.complain("");
    this.typed();
  }

  typed() {
    this.drafts.set(this.at, this.text.value);
    this.changed();
  }

  changed() {
    this.text.style.height = "auto";
    this.text.style.height = `${Math.min(TALLEST, this.text.scrollHeight)}px`;
    this.sendButton.classList.toggle("is-ready", this.isFull());
    this.suggest();
  }

  /** Whether there is something to send. */
  isFull() {
    return Boolean(this.text.value.trim() || this.attachments.items.length);
  }

  async send() {
    if (this.upload) { // the message names the files
      this.complain(this.texts.uploading);
      if ((await this.upload).some((id) => id !== this.at)) return;
      this.complain("");
    }
    if (!this.isFull()) return;
    const typed = this.text.value.trim();
    const text = compose(typed, this.attachments.items);
    const images = this.attachments.items.filter((item) => item.data).map((item) => item.data);
    if (!images.length && text.startsWith("/") && await this.ran(text, typed)) return;
    const when = this.running ? this.when.querySelector("input:checked").value : "start";
    const { at } = this;
    const items = this.attachments.take();
    this.clear();
    try {
      await this.on.send({ text, images, when });
    } catch (error) {
      const id = at === NEW ? this.at : at;
      this.notSent(typed, items, id);
      if (id === this.at) this.complain(this.texts.sentFailed(error.message));
    }
  }

  /** Run the text if it is a command, and return whether it was. If it fails, it stays, with the reason. */
  async ran(text, typed) {
    const { at } = this;
    try {
      if (!(await this.on.command(text))) return false;
      if (this.at === at && this.text.value.trim() === typed) {
        this.attachments.take();
        this.clear();
      }
    } catch (error) {
      this.complain(error.message);
    }
    return true;
  }

  notSent(text, items, id) {
    this.attachments.putBack(items, id);
    if (id !== this.at) {
      if (!this.drafts.get(id)) this.drafts.set(id, text);
      return;
    }
    if (!this.text.value) this.text.value = text;
    this.typed();
  }

  complain(text) {
    this.problem.hidden = !text;
    this.problem.textContent = text;
  }

  key(event) {
    if (event.isComposing) return;
    if (!this.list.hidden && this.keyInList(event)) return;
    if (event.key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      this.send();
    } else if (event.key === "Escape" && this.running && !this.text.value) {
      this.on.stop();
    } else if (event.key === "Backspace" && !this.text.selectionEnd && this.attachments.items.length) {
      event.preventDefault();
      this.attachments.focusLast();
    }
  }

  // Suggestions: commands behind a slash at the beginning, files behind an @ anywhere.

  async suggest() {
    const before = this.text.value.slice(0, this.text.selectionStart);
    const slash = /^\/(\S*)$/.exec(before);
    const at = /(?:^|\s)@(?:"([^"\n]*)|([^\s@"]*))$/.exec(before);
    const turn = (this.asked = (this.asked ?? 0) + 1);
    let found = [];
    if (slash) {
      found = (await this.on.commands()).filter((c) => c.name.startsWith(slash[1]))
        .map((c) => ({ ...c, shown: `/${c.name}`, from: 0, put: `/${c.name} ` }));
    } else if (/^\/\S+ [^\n]*$/.test(before) || at?.[2]?.includes(":")) {  // @server:address
      found = (await this.on.completions(before)).map((c) => ({
        shown: c.text, about: c.about, from: before.length - c.instead_of, put: c.text, argument: true,
      }));
    } else if (at) {
      const typed = at[1] ?? at[2];
      const more = this.on.completions(before); // by a part of their path: that takes longer
      const from = before.lastIndexOf("@");
      const paths = await this.filesBelow(typed);
      if (turn === this.asked) this.offer(paths.slice(0, OFFERED).map((path) => fileOffer(path, from)));
      paths.push(...(await more).map((c) => c.text.replace(/^"|"$/g, "")));
      if (this.selected) return; // the user has chosen meanwhile
      found = [...new Set(paths)].map((path) => fileOffer(path, from));
    }
    if (turn === this.asked) this.offer(found.slice(0, OFFERED));
  }

  /** Return the paths in the folder that is typed. */
  async filesBelow(typed) {
    const folder = typed.slice(0, typed.lastIndexOf("/") + 1);
    const name = typed.slice(folder.length).toLowerCase();
    const there = (await this.on.files(folder)).filter((file) => file.name.toLowerCase().startsWith(name));
    return there.map((file) => `${folder}${file.name}${file.folder ? "/" : ""}`);
  }

  offer(found) {
    this.offered = found;
    this.chosen = 0;
    this.selected = false;
    this.list.hidden = !found.length;
    if (found.length && !this.counted) this.on.say(this.texts.suggested(found.length));
    this.counted = found.length > 0;
    fill(this.list, found.map((each, n) => h("li", {
      id: `suggestion-${n}`, role: "option", "aria-selected": "false",
      on: { mousedown: (e) => { e.preventDefault(); this.take(n); } },
    }, h("span", { class: "name" }, each.shown), h("span", { class: "about" }, each.about ?? ""))));
    this.mark();
  }

  mark() {
    [...this.list.children].forEach((li, n) => li.setAttribute("aria-selected", String(n === this.chosen)));
    if (this.list.hidden) this.text.removeAttribute("aria-activedescendant");
    else this.text.setAttribute("aria-activedescendant", `suggestion-${this.chosen}`);
  }

  keyInList(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const { from, put, argument } = this.offered[this.chosen];
    // Enter sends what is complete; and an argument of a command, unless another was selected.
    const sends = `${this.text.value.slice(0, from)}${put}`.trim() === this.text.value.trim() || (argument && !this.selected);
    if (step) {
      this.chosen = (this.chosen + step + this.offered.length) % this.offered.length;
      this.selected = true;
      this.mark();
    } else if (event.key === "Tab" || (event.key === "Enter" && !event.shiftKey && !sends)) this.take(this.chosen);
    else if (event.key === "Escape") this.offer([]);
    else return false;
    event.preventDefault();
    return true;
  }

  take(n) {
    const { from, put } = this.offered[n];
    const end = this.text.selectionStart;
    this.text.setRangeText(put, from, end, "end");
    this.text.focus();
    this.offer([]); // the next key is not for those that were offered
    this.typed();
  }

  // Attachments.

  pasted(event) {
    const files = [...(event.clipboardData?.files ?? [])];
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (!files.length && !isLong(text)) return;
    event.preventDefault();
    if (files.length) this.addFiles(files);
    else this.attachments.addPaste(text);
  }

  dropped(event) {
    event.preventDefault();
    this.element.classList.remove("is-over");
    const { files, folders } = readDrop(event.dataTransfer);
    if (files.length) this.addFiles(files);
    for (const folder of folders) this.addFolder(() => folder);
  }

  async addFiles(files) {
    this.complain("");
    const others = files.filter((file) => !IMAGES.has(file.type));
    if (others.length) this.uploaded(others.length, this.on.upload(others));
    for (const file of files.filter((each) => IMAGES.has(each.type))) {
      if (file.size > MAX_IMAGE_BYTES) this.complain(this.texts.imageTooLarge(file.name));
      else await this.attachments.addPicture(file);
    }
    this.picker.value = "";
    this.text.focus();
  }

  async addFolder(read) {
    this.complain("");
    try {
      const folder = await read();
      if (folder.files.length) this.uploaded(folder.files.length, this.on.uploadFolder(folder));
      else this.complain(this.texts.attachments.emptyFolder(folder.name));
    } catch (error) {
      this.complain(error instanceof TooManyFiles ? this.texts.attachments.tooMany(error.folder) : this.texts.dialogFailed(error.message));
    }
    this.folderPicker.value = "";
    this.text.focus();
  }

  /** Wait until these files are uploaded, before the message is sent. */
  async uploaded(count, upload) {
    const all = Promise.all([...(this.upload ? [this.upload] : []), upload]).then((ids) => ids.flat());
    this.upload = all;
    this.attachments.setPending(this.attachments.pending + count);
    await all;
    if (this.upload !== all) return;
    this.upload = null;
    this.attachments.setPending(0);
  }
}

/** Return the suggestion for a path. A file is complete; for a folder, its files are offered next. */
function fileOffer(path, from) {
  return { shown: path, about: "", from, put: path.endsWith("/") ? mention(path).replace(/"? $/, "") : mention(path) };
}
