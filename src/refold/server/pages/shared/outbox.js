// Messages that the server has not got yet: they stay in sight and say so, also after a reload. Each
// has a key, by which the server takes it once, however often it is sent.

import { fill, h, iconButton } from "./dom.js";
import { exact } from "./escape.js";

const KEY = "refold-unsent";
const MAX_MESSAGES = 50;
const SHOWN_AFTER_MS = 1000; // a message is under way for a moment

/** The texts of messages of a conversation that were not sent, in this browser; no pictures. */
export class UnsentStorage {
  constructor(id, storage = localStorage) {
    this.id = id;
    this.storage = storage;
  }

  read() {
    return this.all().filter((message) => message.id === this.id);
  }

  write(messages) {
    const others = this.all().filter((message) => message.id !== this.id);
    const own = messages.filter((message) => !message.images).map((message) => ({ ...message, id: this.id }));
    try {
      this.storage.setItem(KEY, JSON.stringify([...others, ...own].slice(-MAX_MESSAGES)));
    } catch {
      // no room in this browser: they are kept as long as the page is open
    }
  }

  remove(key) {
    this.write(this.read().filter((message) => message.key !== key));
  }

  all() {
    try {
      const messages = JSON.parse(this.storage.getItem(KEY) ?? "[]");
      return Array.isArray(messages) ? messages.filter((message) => message?.key && message.text) : [];
    } catch {
      return [];
    }
  }
}

export class Outbox {
  /** `takeBack(message)` puts one back into the message box. */
  constructor(texts, takeBack) {
    this.texts = texts;
    this.takeBack = takeBack;
    this.element = h("ul", { class: "outbox", "aria-label": texts.unsent.label, hidden: true });
  }

  show(messages) {
    clearTimeout(this.due);
    const now = Date.now();
    const late = messages.filter((message) => now - message.at >= SHOWN_AFTER_MS);
    if (late.length < messages.length) this.due = setTimeout(() => this.show(messages), SHOWN_AFTER_MS);
    this.element.hidden = !late.length;
    fill(this.element, late.map((message) => h("li", {}, h("span", { class: "text" }, exact(message.text)),
      h("span", { class: "tag" }, this.texts.unsent.tag),
      iconButton("undo", this.texts.editQueued, () => this.takeBack(message)))));
  }
}
