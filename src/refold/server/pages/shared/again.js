// What a person can do with what was said: copy it, go back to a message or edit it, with its
// text in the message box again; and after the last turn have the answer again, or try again.

import * as api from "./api.js";
import { askRewind } from "./dialogs.js";
import { fill, h, icon, iconButton } from "./dom.js";
import { lastBlock, waiting } from "./reducer.js";
import { aboutModels } from "./settings/models.js";

const CONTINUED = new Set(["failed", "step_limit", "budget"]); // as by Enter in the terminals
const COPIED_MS = 1500;

/** A button that copies a text, and says that it did. */
export function copyButton(label, text, t) {
  const made = iconButton("copy", label, async () => {
    const done = await navigator.clipboard.writeText(text).then(() => true, () => false);
    const said = done ? t.lines.copied : t.lines.notCopied;
    made.setAttribute("aria-label", said);
    made.title = said;
    fill(made, icon(done ? "check" : "close"));
    setTimeout(() => {
      made.setAttribute("aria-label", label);
      made.title = label;
      fill(made, icon("copy"));
    }, COPIED_MS);
  });
  return made;
}

export class Again {
  /** `page` has conversation, composer, order(order) and tried(promise). */
  constructor(page, texts) {
    this.page = page;
    this.texts = texts;
    this.returning = null; // a message that the box gets when its copy is open
    this.element = h("div", { class: "again", role: "group", "aria-label": texts.again.label, hidden: true });
    this.clear();
  }

  /** Another conversation comes, whose events may have the same numbers. */
  clear() {
    this.key = "";
    this.element.hidden = true;
    fill(this.element);
  }

  show(screen) {
    const { caughtUp, readOnly } = this.page.conversation;
    const { requests, plan } = waiting(screen);
    const over = overIn(screen);
    const ends = over && !over.usage; // which files a turn has changed comes in the document after its end
    const busy = screen.turn || ends || screen.open.length || screen.cutOff || requests.length || plan;
    const message = !busy && caughtUp && !readOnly ? lastMessage(screen) ?? earlierMessage(screen) : null;
    this.element.hidden = !message;
    const key = message ? `${message.seq} ${screen.outcome} ${screen.done.length}` : "";
    if (key === this.key) return;
    this.key = key;
    if (message) this.draw(screen, message);
    else fill(this.element);
  }

  draw(screen, message) {
    const t = this.texts;
    const answer = lastBlock(screen, (b) => b.kind === "words" && b.seq > message.seq && !b.partial);
    const over = overIn(screen);
    const button = (name, label, click) => h("button", { type: "button", class: "button quiet", on: { click } }, icon(name), label);
    const review = over?.files.length ? button("diff", t.review.title, () => this.page.review.open()) : null;
    fill(this.element, answer ? copyButton(t.again.copyAnswer, answer.text, t) : null, review, CONTINUED.has(screen.outcome)
      ? button("retry", t.retry, () => this.page.tried(this.page.order({ type: "continue" })))
      : button("retry", t.again.regenerate, () => this.page.tried(this.regenerateLast())),
    screen.outcome === "failed" && aboutModels(over?.reason) && !api.hasPeople() ? button("gear", t.settings.title, () => this.page.settings.open("models")) : null);
  }

  /** Have the answer to the last message again, which may have to be read first. */
  async regenerateLast() {
    const { conversation } = this.page;
    while (!lastMessage(conversation.screen) && conversation.screen.older) await conversation.readOlder();
    const { screen } = conversation;
    const message = lastMessage(screen);
    if (message && conversation === this.page.conversation) await this.regenerate(screen, message);
  }

  /** The message is read again. Files that were changed since can be taken back, too. */
  async regenerate(screen, message) {
    const over = overIn(screen);
    const images = await imagesOf(message, this.page.conversation.id);
    if (over?.files.length) {
      const what = await this.ask(message, this.texts.again.regenerate, ["both", "conversation"]);
      if (!what) return;
    } else await this.page.order({ type: "rewind", to: message.seq, what: "conversation" });
    await this.page.order({
      type: "user_message", text: message.text, ...(message.said === message.text ? {} : { typed: message.said }),
      ...(images.length ? { images } : {}),
    });
  }

  /** Go back to before a message, which stands in the box again. */
  async rewind(message) {
    const { id } = this.page.conversation;
    const what = await this.ask(message, this.texts.rewindTo);
    if (what && what !== "files") await this.putBack(message, id);
  }

  /** Resolves to what was taken back, or null. */
  ask(message, title, whats = undefined) {
    return askRewind({ ...this.texts, rewindTo: title }, (what, drift) => this.page.order({ type: "rewind", to: message.seq, what, ...drift }), whats);
  }

  /** A copy of the conversation up to a message, which stands in its box. This one stays. */
  async edit(message) {
    this.returning = { message, from: this.page.conversation.id };
    try {
      await this.page.order({ type: "fork", at: Math.max(1, message.seq - 1) });
    } catch (error) {
      this.returning = null;
      throw error;
    }
  }

  /** The copy of a conversation is open. */
  opened() {
    if (!this.returning) return;
    const { message, from } = this.returning;
    this.returning = null;
    this.page.tried(this.putBack(message, from));
  }

  async putBack(message, id) {
    this.page.composer.putBack(message.said);
    const images = await imagesOf(message, id);
    this.page.composer.attachments.addPictures(images);
  }
}

/** The last message of a person that was not taken back. */
function lastMessage(screen) {
  return lastBlock(screen, (b) => b.kind === "heard" && b.sender === "person" && !b.rewound);
}

const overIn = (screen) => lastBlock(screen, (b) => b.kind === "turn_over");

/** Stands for a message that is older than what is loaded. */
const earlierMessage = (screen) => (screen.older ? { seq: screen.older.seq } : null);

async function imagesOf(message, id) {
  return Promise.all(message.images.map(async ({ blob, name }) => {
    const data = await api.blob(api.of(id, "blobs", blob));
    return { content: await api.base64(data), kind: data.type, name };
  }));
}
