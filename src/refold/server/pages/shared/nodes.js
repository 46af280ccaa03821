// A subagent as a conversation of its own: its id, which begins with that of the conversation it
// works for, and the bar that leads back there. It can be read, and takes no messages.

import { fill, h, icon } from "./dom.js";
import { onOneLine } from "./escape.js";
import { waiting } from "./reducer.js";
import { titleOf } from "./list.js";

export const rootOf = (id) => id.split("/")[0];
export const isNode = (id) => id.includes("/");

/** Return a button that opens a subagent; `words` is its text. */
export function openButton(id, words, label, open) {
  return h("button", { type: "button", class: "open-node", "aria-label": label, on: { click: () => open(id) } }, words);
}

/** Return the button that opens a subagent, for the line that says that it started. */
export function openChild(block, context, t) {
  if (block.what !== "subagent_start") return null;
  const { child } = block.doc;
  return [" ", openButton(child, t.node.show, t.node.open(t.work.helper(child)), (name) => context.openChild(name))];
}

export class NodeBar {
  /** `page` has open(id) and list. */
  constructor(page, texts) {
    this.page = page;
    this.texts = texts;
    this.note = h("span", { class: "node-note", role: "status" });
    this.path = h("ol", {});
    this.element = h("nav", { class: "node-bar", "aria-label": texts.node.path, hidden: true }, this.path, this.note);
  }

  /** Show the way to this conversation; "" or one that is no subagent has none. */
  open(id) {
    this.element.hidden = !isNode(id);
    if (this.element.hidden) {
      this.id = "";
      return;
    }
    const t = this.texts;
    const [root, ...names] = id.split("/");
    const card = this.page.list.cards.get(root);
    const steps = [[root, card ? titleOf(card, t) : t.node.conversation],
      ...names.map((name, n) => [[root, ...names.slice(0, n + 1)].join("/"), t.work.helper(name)])];
    fill(this.path, steps.map(([address, words], n) => h("li", { "aria-current": address === id ? "page" : null }, address === id ? onOneLine(words)
      : [openButton(address, [n ? null : icon("undo"), onOneLine(words)], t.node.back(words), (to) => this.page.open(to)),
        " ", h("span", { "aria-hidden": "true" }, "›")])));
    if (id === this.id) return; // the list has its title now
    this.id = id;
    this.asks = null;
    this.show(null);
  }

  show(screen) {
    if (this.element.hidden) return;
    const asks = Boolean(screen && waiting(screen).requests.length);
    if (asks === this.asks) return;
    this.asks = asks;
    fill(this.note, asks ? this.texts.node.asks : this.texts.node.readOnly);
  }
}
