// What a user wrote, as both pages show it: the files that it names stand out, and a long text is folded.

import { fill, h, icon } from "./dom.js";
import { exact } from "./escape.js";

const MAX_LINES = 20;
const MAX_CHARS = 2000;
const NAMES = /^@(?:"[^"\n]+"|\S+)(?: @(?:"[^"\n]+"|\S+))*$/; // a line of nothing else, as `compose` of attachments makes it
const NAME = /@(?:"([^"]+)"|(\S+))/g;

/** `context` has the texts, and `folds`: what the user has opened. */
export function messageText(block, context) {
  const text = h("div", { class: "message-text" }, parts(block.said));
  const lines = block.said.split("\n").length;
  if (lines <= MAX_LINES && block.said.length <= MAX_CHARS) return text;
  const key = `message-${block.seq}`;
  const t = context.texts.longMessage;
  const button = h("button", { type: "button", class: "button quiet show-all", on: { click: () => {
    context.folds.set(key, !context.folds.get(key));
    draw();
  } } });
  const draw = () => {
    const open = context.folds.get(key) ?? false;
    text.classList.toggle("is-cut", !open);
    button.setAttribute("aria-expanded", String(open));
    fill(button, open ? t.less : t.all(lines));
  };
  draw();
  return [text, button];
}

/** Pure. */
function parts(said) {
  const lines = said.split("\n");
  const at = lines.findIndex((line) => NAMES.test(line));
  if (at < 0) return exact(said);
  const [before, after] = [lines.slice(0, at), lines.slice(at + 1)].map((part) => part.join("\n").replace(/^\n+|\n+$/g, ""));
  const names = [...lines[at].matchAll(NAME)].map(([, quoted, plain]) => quoted ?? plain);
  return [before && h("div", {}, exact(before)),
    h("ul", { class: "named" }, names.map((name) => h("li", {}, icon(name.endsWith("/") ? "folder" : "file"), h("span", {}, exact(name))))),
    after && h("div", {}, exact(after))].filter(Boolean);
}
