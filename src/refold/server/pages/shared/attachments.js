// What goes with the message in the box: pictures, uploaded files and folders, and long texts that were
// pasted. Each is a chip that mouse and keyboard remove. What is sent of them is in `compose`; where
// files go is decided by the page.

import { base64 } from "./api.js";
import { fill, h, icon, iconButton } from "./dom.js";
import { Drafts, mention, NEW } from "./drafts.js";
import { exact, onOneLine } from "./escape.js";
import { bytes } from "./files.js";

const KEY = "refold-attached";
const MAX_STORED_CHARS = 90_000; // of one conversation: longer pastes are not kept over a reload
const MAX_SHOWN_LINES = 15; // of a paste, as in the terminals: more is a chip
const MAX_SHOWN_CHARS = 1500;
const MAX_TITLE_CHARS = 300; // of a pasted text, shown on hovering
const MAX_FOLDER_FILES = 200;

/** Whether a pasted text is so long that it would hide what is typed. */
export const isLong = (text) => text.length > MAX_SHOWN_CHARS || text.split("\n").length > MAX_SHOWN_LINES;

/** Return the message as the model reads it: with the names of files, then the pasted texts. */
export function compose(text, items) {
  const names = items.filter((item) => item.path).map((item) => mention(item.path).trim()).join(" ");
  const pasted = items.filter((item) => item.text).map((item) => item.text);
  if (text.startsWith("/")) return [text, names, ...pasted].filter(Boolean).join(" "); // a command and its arguments
  return [text, names, ...pasted].filter(Boolean).join("\n\n");
}

export class Attachments {
  /** `on` has changed(), say(text), leave(): to the message box, and unfold(text): into it. */
  constructor(texts, on) {
    this.texts = texts.attachments;
    this.on = on;
    this.items = [];
    this.at = NEW;
    this.pending = 0; // files that are being uploaded
    this.pictures = new Map(); // of the drafts of other conversations: too large to be stored
    this.drafts = new Drafts(localStorage, KEY);
    this.element = h("ul", { class: "attached", "aria-label": this.texts.label, hidden: true, on: { keydown: (e) => this.key(e) } });
    this.items = this.read(NEW);
    this.show();
  }

  /** Each has a `name`, and `data` (a picture), `path` (a file or a folder) or `text`. */
  add(item, id = this.at) {
    if (id !== this.at) this.write(id, [...this.read(id), item]);
    else {
      this.become([...this.items, item]);
      this.element.scrollTop = this.element.scrollHeight;
    }
    this.on.say(this.texts.attached(this.nameOf(item)));
  }

  async addPicture(file) {
    this.addPictures([{ content: await base64(file), kind: file.type, name: file.name || "picture.png" }]);
  }

  /** Return the pictures in the form of a message. */
  addPictures(all) {
    for (const data of all) this.add({ name: data.name || this.texts.picture, data });
  }

  addPaste(text) {
    this.add({ text: text.replace(/\r\n?/g, "\n").replace(/\n+$/, "") });
  }

  setPending(count) {
    this.pending = count;
    this.show();
  }

  /** Return everything that is attached, and remove it. */
  take() {
    const { items } = this;
    this.become([]);
    return items;
  }

  /** Attach items again that were not sent. */
  putBack(items, id) {
    if (id === this.at) this.become([...items, ...this.items]);
    else this.write(id, [...items, ...this.read(id)]);
  }

  setConversation(id) {
    const pictures = this.items.filter((item) => item.data);
    if (pictures.length) this.pictures.set(this.at, pictures);
    this.at = id;
    this.items = [...(this.pictures.get(id) ?? []), ...this.read(id)];
    this.pictures.delete(id);
    this.show();
  }

  /** Set the id of the conversation that was new. */
  began(id) {
    this.drafts.move(NEW, id);
    this.at = id;
  }

  forget(id) {
    this.drafts.set(id, "");
    this.pictures.delete(id);
  }

  become(items) {
    this.items = items;
    this.write(this.at, items);
    this.show();
    this.on.changed();
  }

  read(id) {
    try {
      const items = JSON.parse(this.drafts.get(id) || "[]");
      return Array.isArray(items) ? items.filter((item) => item?.path || item?.text) : [];
    } catch {
      return [];
    }
  }

  write(id, items) {
    const stored = items.filter((item) => !item.data);
    while (JSON.stringify(stored).length > MAX_STORED_CHARS) stored.splice(stored.findIndex((item) => item.text), 1);
    this.drafts.set(id, stored.length ? JSON.stringify(stored) : "");
  }

  show() {
    const uploading = this.pending ? h("li", { class: "attachment is-pending" }, this.texts.uploading(this.pending)) : null;
    this.element.hidden = !this.items.length && !uploading;
    fill(this.element, this.items.map((item, n) => this.chip(item, n)), uploading);
  }

  chip(item, n) {
    const name = this.nameOf(item);
    const remove = iconButton("close", this.texts.remove(name), () => this.remove(n));
    if (item.data) {
      const image = h("img", { src: `data:${item.data.kind};base64,${item.data.content}`, alt: name });
      return h("li", { class: "attachment is-picture" }, image, remove);
    }
    if (item.text) {
      const unfold = h("button", {
        type: "button", class: "attachment-name", title: exact(item.text.slice(0, MAX_TITLE_CHARS)), "aria-label": this.texts.unfold(name),
        on: { click: () => this.unfold(n) },
      }, icon("list"), h("span", {}, name));
      return h("li", { class: "attachment" }, unfold, remove);
    }
    const about = item.files ? this.texts.files(item.files) : bytes(item.size ?? 0);
    return h("li", { class: "attachment" },
      h("span", { class: "attachment-name", title: onOneLine(item.path) }, icon(item.files ? "folder" : "file"), h("span", {}, name), h("small", {}, about)), remove);
  }

  nameOf(item) {
    if (item.text) return this.texts.pasted(item.text.split("\n").length, item.text.length);
    return onOneLine(item.name || item.path);
  }

  /** Remove one; the focus goes to the one that stands there now, or to the message box. */
  remove(n) {
    const [item] = this.items.slice(n, n + 1);
    this.become(this.items.filter((each) => each !== item));
    this.on.say((item.path ? this.texts.removedFile : this.texts.removed)(this.nameOf(item)));
    this.focus(Math.min(n, this.items.length - 1));
  }

  /** Put a pasted text into the box, where it can be edited. */
  unfold(n) {
    const { text } = this.items[n];
    this.become(this.items.filter((_, at) => at !== n));
    this.on.unfold(text);
  }

  focus(n) {
    const button = this.element.children[n]?.querySelector(".icon-button");
    if (button) button.focus();
    else this.on.leave();
  }

  focusLast() {
    this.focus(this.items.length - 1);
  }

  key(event) {
    const n = [...this.element.children].indexOf(event.target.closest("li"));
    const onward = getComputedStyle(this.element).direction === "rtl" ? -1 : 1;
    const step = { ArrowRight: onward, ArrowLeft: -onward }[event.key];
    if (step) {
      if (n + step >= this.items.length) this.on.leave();
      else this.focus(Math.max(0, n + step));
    } else if (event.key === "Delete" || event.key === "Backspace") this.remove(n);
    else if (event.key === "Escape") this.on.leave();
    else return;
    event.preventDefault();
  }
}

/** Thrown if a folder has too many files to be attached. */
export class TooManyFiles extends Error {
  constructor(name) {
    super(name);
    this.folder = name;
  }
}

/**
 * What was dropped, read at once, as the browser forgets it: `files`, and promises of `folders`, each as
 * of `folderOf`.
 */
export function readDrop(transfer) {
  const entries = [...(transfer.items ?? [])].map((item) => item.webkitGetAsEntry?.()).filter((entry) => entry?.isDirectory);
  const names = new Set(entries.map((entry) => entry.name));
  return {
    files: [...transfer.files].filter((file) => !names.has(file.name) || file.type),
    folders: entries.map(async (entry) => folderOf(entry.name, await filesBelow(entry, entry.name))),
  };
}

/** Return the files of a chosen folder: [{file, path}]. */
export function chosenFolder(files) {
  const every = files.map((file) => ({ file, path: file.webkitRelativePath }));
  return folderOf(every[0].path.split("/")[0], every);
}

/** A folder without its hidden files: {name, files}. */
function folderOf(name, every) {
  const files = every.filter(({ path }) => !path.slice(name.length).includes("/."));
  if (files.length > MAX_FOLDER_FILES) throw new TooManyFiles(name);
  return { name, files };
}

async function filesBelow(directory, path, files = []) {
  const reader = directory.createReader();
  const part = () => new Promise((done, failed) => { reader.readEntries(done, failed); });
  for (let entries = await part(); entries.length; entries = await part()) { // a browser gives 100 at a time
    for (const entry of entries.filter((each) => !each.name.startsWith("."))) {
      const at = `${path}/${entry.name}`;
      if (entry.isDirectory) await filesBelow(entry, at, files);
      else files.push({ path: at, file: await new Promise((done, failed) => { entry.file(done, failed); }) });
      if (files.length > MAX_FOLDER_FILES) return files;
    }
  }
  return files;
}
