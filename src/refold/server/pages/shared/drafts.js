// Messages that were typed and not sent, one for each conversation: they survive a reload, and
// never stand in the box of another conversation. They are kept in this browser, within bounds.

const KEY = "refold-drafts";
const MAX_DRAFTS = 50;
const MAX_CHARS = 100_000; // of one draft
export const NEW = ""; // the conversation that is not begun yet

export class Drafts {
  constructor(storage = localStorage, key = KEY) {
    this.storage = storage;
    this.key = key;
  }

  get(id) {
    return this.all()[id]?.[0] ?? "";
  }

  /** Keep this text for the conversation; "" for none. */
  set(id, text) {
    const drafts = this.all();
    delete drafts[id]; // the newest stands last
    if (text) drafts[id] = [text.slice(0, MAX_CHARS), Date.now()];
    const ids = Object.keys(drafts).sort((a, b) => drafts[a][1] - drafts[b][1]);
    for (const old of ids.slice(0, Math.max(0, ids.length - MAX_DRAFTS))) delete drafts[old];
    this.write(drafts, ids);
  }

  move(from, to) {
    const text = this.get(from);
    if (!text) return;
    this.set(from, "");
    this.set(to, text);
  }

  all() {
    try {
      const drafts = JSON.parse(this.storage.getItem(this.key) ?? "{}");
      return drafts && typeof drafts === "object" && !Array.isArray(drafts) ? drafts : {};
    } catch {
      return {};
    }
  }

  // A browser has little room: the oldest drafts go first.
  write(drafts, ids) {
    for (const old of [null, ...ids]) {
      if (old !== null) delete drafts[old];
      try {
        this.storage.setItem(this.key, JSON.stringify(drafts));
        return;
      } catch {
        continue;
      }
    }
  }
}

/** Return the name of a file in a message. */
export function mention(path) {
  return /\s/.test(path) ? `@"${path}" ` : `@${path} `;
}
