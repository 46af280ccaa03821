// Markdown of a model as elements: the one place where text becomes markup. marked parses it,
// DOMPurify keeps what is harmless, and nothing is loaded: a picture becomes its name. While a
// text grows, only its last open block is parsed again.

import { h } from "./dom.js";
import { exact } from "./escape.js";
import { misleads } from "./links.js";
import hljs from "./vendor/highlight.js";
import { Marked } from "./vendor/marked.js";
import DOMPurify from "./vendor/purify.js";

const DIRECTED = "p, ul, ol, blockquote, table, h1, h2, h3, h4, h5, h6"; // each may be right to left
const LONGEST_CODE = 50_000; // characters that are highlighted
const TAGS = [
  "a", "blockquote", "br", "code", "del", "em", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "input",
  "li", "ol", "p", "pre", "span", "strong", "table", "tbody", "td", "th", "thead", "tr", "ul",
];
DOMPurify.setConfig({ // once: it is not read again for every piece
  ALLOWED_TAGS: TAGS, ALLOWED_ATTR: ["align", "checked", "class", "disabled", "href", "start", "type"],
  ADD_URI_SAFE_ATTR: ["align", "start"], ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i, ALLOW_DATA_ATTR: false, ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
});
const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.codePointAt(0)};`);
const marked = new Marked({
  gfm: true, breaks: false, async: false,
  renderer: {
    html: ({ text }) => escaped(text), // shown as it is written
    image: ({ text, href }) => escaped(text || href),
    heading({ tokens, depth }) { // the page has the h1
      const level = Math.min(6, depth + 1);
      return `<h${level}>${this.parser.parseInline(tokens)}</h${level}>`;
    },
  },
});

/** Return the elements of a complete text. `labels.copy` names the button of a block of code. */
export function markdown(text, labels) {
  return finished(clean(marked.parse(text)), labels);
}

/** A text that grows, in `element`. */
export class GrowingMarkdown {
  constructor(element, labels) {
    this.element = element;
    this.labels = labels;
    this.text = "";
    this.parsed = 0; // characters that are parsed again: measured by a test
    this.settled = 0; // how much of it stands for good
    this.tail = []; // the elements of the open block
  }

  show(text) {
    if (!text.startsWith(this.text)) this.restart();
    this.text = text;
    const rest = text.slice(this.settled);
    this.parsed += rest.length;
    const tokens = marked.lexer(rest);
    const last = tokens.findLastIndex((token) => token.type !== "space");
    for (const node of this.tail) node.remove();
    if (last > 0 && isSure(tokens[last])) {
      const whole = tokens.slice(0, last);
      this.element.append(finished(clean(this.html(whole, tokens.links)), this.labels));
      this.settled += whole.reduce((sum, token) => sum + token.raw.length, 0);
    }
    const open = last > 0 && isSure(tokens[last]) ? tokens.slice(last) : tokens;
    const fragment = finished(clean(this.html(open, tokens.links)), this.labels, false);
    this.tail = [...fragment.childNodes];
    this.element.append(fragment);
  }

  html(tokens, links) {
    return marked.parser(Object.assign(tokens, { links }));
  }

  restart() {
    this.element.replaceChildren();
    this.settled = 0;
    this.tail = [];
  }
}

// A beginning such as "-" or "2." may still belong to the list before it.
function isSure(token) {
  return token.raw.length > 8 || token.raw.trimEnd().includes("\n");
}

function clean(html) {
  return DOMPurify.sanitize(html);
}

// `colours`: code is highlighted, which takes too long for one that still grows.
function finished(fragment, labels, colours = true) {
  for (const link of fragment.querySelectorAll("a[href]")) {
    link.target = "_blank";
    link.rel = "noopener noreferrer";
    link.title = exact(link.href);
    if (misleads(link)) link.after(h("span", { class: "link-target" }, ` (${exact(link.href)})`));
  }
  for (const element of fragment.querySelectorAll(DIRECTED)) element.dir = "auto";
  for (const table of fragment.querySelectorAll("table")) {
    const room = h("div", { class: "table-room", tabindex: "0", role: "region", "aria-label": labels.table });
    table.replaceWith(room);
    room.append(table);
  }
  for (const box of fragment.querySelectorAll("input")) {
    box.type = "checkbox"; // no other is made of Markdown
    box.disabled = true;
    box.setAttribute("aria-label", labels.done);
  }
  for (const code of fragment.querySelectorAll("pre > code")) block(code, labels, colours);
  return fragment;
}

function block(code, labels, colours) {
  const text = code.textContent;
  const language = /language-([\w+#-]+)/.exec(code.className)?.[1] ?? "";
  const known = language && hljs.getLanguage(language);
  if (colours && known && text.length <= LONGEST_CODE) {
    code.replaceChildren(clean(hljs.highlight(text, { language, ignoreIllegals: true }).value));
  }
  const copy = h("button", {
    type: "button", class: "copy", on: { click: () => copied(copy, text, labels) },
  }, labels.copy);
  const pre = code.parentElement;
  const frame = h("div", { class: "code" },
    h("div", { class: "code-head" }, h("span", {}, language || labels.code), copy));
  pre.replaceWith(frame);
  pre.setAttribute("tabindex", "0");
  frame.append(pre);
}

async function copied(button, text, labels) {
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = labels.copied;
  } catch {
    button.textContent = labels.notCopied;
  }
  setTimeout(() => { button.textContent = labels.copy; }, 1500);
}
