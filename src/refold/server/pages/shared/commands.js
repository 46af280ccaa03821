// What a slash command shows, above the message box, and what it asks. The server runs it: a
// command that asks is run once more with the answer.

import * as api from "./api.js";
import { choice } from "./dialogs.js";
import { fill, h, iconButton } from "./dom.js";
import { markdown } from "./markdown.js";

const NARROWEST = 20; // characters of a row
const WIDEST = 120;
const LONG_LIST = 8; // items from which on a list can be narrowed

export class CommandOutput {
  /** `opened(id)` shows another conversation, to which a command has led. */
  constructor(texts, opened) {
    this.texts = texts;
    this.opened = opened;
    this.body = h("div", { class: "command-body", tabindex: "0", role: "region", "aria-label": texts.commandShows });
    this.title = h("code", {});
    this.element = h("section", {
      class: "command-output", hidden: true, on: { keydown: (event) => { if (event.key === "Escape") this.close(); } },
    }, h("header", {}, this.title, iconButton("close", texts.close, () => this.close())), this.body);
  }

  close() {
    this.element.hidden = true;
    fill(this.body);
  }

  /** Rejects where the server does not take it. */
  async run(id, text, answers = []) {
    const found = await api.post(api.of(id, "commands"), { text, room: this.room(), answers });
    if (found.conversation !== id) this.opened(found.conversation);
    this.title.textContent = text;
    fill(this.body, blocks(found.documents, this.texts), found.question
      ? this.question(found.question, (answer, dial = "") => this.run(id, text, [...answers, { question: found.question.title, answer, dial }])
        .catch((error) => this.failed(error))) : null);
    this.element.hidden = !this.body.childNodes.length;
    this.body.scrollTop = found.question ? this.body.scrollHeight : 0;
    this.body.querySelector("button, input")?.focus();
    return this.body.textContent;
  }

  failed(error) {
    fill(this.body, h("p", { class: "problem", role: "alert" }, this.texts.dialogFailed(error.message)));
  }

  /** How many characters a row may have here. */
  room() {
    const probe = h("pre", { class: "command-probe" }, "0".repeat(100));
    document.body.append(probe);
    const one = probe.getBoundingClientRect().width / 100;
    probe.remove();
    const wide = (this.element.nextElementSibling.clientWidth - 34) / one;
    return Math.max(NARROWEST, Math.min(WIDEST, Math.floor(wide) || WIDEST));
  }

  question(asked, answer) {
    const t = this.texts;
    const title = h("p", { class: "command-question" }, asked.title);
    const button = (label, click) => h("button", { type: "button", class: "button", on: { click } }, label);
    if (asked.keys) {
      return [title, h("div", { class: "actions" }, [...asked.keys].map((key) => button(t.commandKeys[key] ?? key, () => answer(key))))];
    }
    if (asked.items) return [title, this.list(asked, answer)];
    const input = h("input", { type: "text", "aria-label": asked.title, autocomplete: "off", value: asked.text ?? "" });
    return [title, h("form", { class: "actions", on: { submit: (event) => { event.preventDefault(); answer(input.value); } } },
      input, h("button", { type: "submit", class: "button" }, t.commandAnswer))];
  }

  list(asked, answer) {
    const dial = asked.dial ? choice("dial", asked.dial.values.map((value) => [value, value || this.texts.asSet]), asked.dial.value) : null;
    const rows = asked.items.map((item) => h("li", {}, h("button", {
      type: "button", "aria-current": item.id === asked.selected ? "true" : null, on: { click: () => answer(item.id, dial?.value ?? "") },
    }, pieces(item.row))));
    const narrow = () => rows.forEach((row, n) => {
      const { groups } = asked.items[n];
      const words = filter?.value.trim().toLowerCase() ?? "";
      row.hidden = !row.textContent.toLowerCase().includes(words) || (groups && !groups.includes(dial?.value));
    });
    const filter = rows.length < LONG_LIST ? null : h("input", {
      type: "search", "aria-label": this.texts.searchHint, placeholder: this.texts.searchHint, on: { input: narrow },
    });
    dial?.addEventListener("change", narrow);
    return [dial ? h("label", { class: "field" }, h("span", {}, asked.dial.label), dial) : null, filter, h("ul", { class: "command-list" }, rows)];
  }
}

function blocks(documents, texts) {
  const found = [];
  for (const each of documents) {
    if (each.markdown) found.push(h("div", { class: "prose" }, markdown(each.markdown, texts.lines)));
    else {
      if (found.at(-1)?.tagName !== "PRE") found.push(h("pre", { class: "command-rows" }));
      found.at(-1).append(...pieces(each.row ?? []), "\n");
    }
  }
  return found;
}

function pieces(row) {
  return row.map(([style, text]) => (style === "plain" ? document.createTextNode(text) : h("span", { class: `is-${style}` }, text)));
}
