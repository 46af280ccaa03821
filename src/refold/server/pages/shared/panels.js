// Panels that both pages have: the todo list, and the messages of a person with search and the
// way back to each.

import { fill, h, iconButton } from "./dom.js";
import { onOneLine } from "./escape.js";
import { logItems } from "./reducer.js";

const SHOWN = 300;

export function todosPanel(element, t) {
  return { changed: (screen) => {
    fill(element, screen.todos.length ? h("ul", { class: "todos" }, screen.todos.map((todo) => h("li", { class: `todo todo-${todo.status}` },
      h("span", { class: "mark", "aria-hidden": "true" }), h("span", {}, onOneLine(todo.subject)),
      h("span", { class: "unseen" }, `: ${t.todo[todo.status]}`)))) : h("p", { class: "empty" }, t.noTodos));
  } };
}

export function historyPanel(element, page, t) {
  let items = [];
  const search = h("input", { type: "search", placeholder: t.searchHistory, "aria-label": t.searchHistory, on: { input: () => draw() } });
  const list = h("ol", { class: "history" });
  fill(element, h("div", { class: "panel-tools" }, search), list);
  let length = -1;
  page.tried(page.conversation.readAll());
  function draw() {
    const words = search.value.trim().toLowerCase();
    const found = items.filter((b) => (words ? (b.said ?? b.text).toLowerCase().includes(words) : b.kind === "heard" && b.sender === "person"));
    fill(list, found.slice(-SHOWN).map((block) => h("li", { class: block.rewound ? "is-rewound" : "" },
      h("button", { type: "button", class: "file-link", on: { click: () => page.goTo(block.seq) } },
        h("span", {}, excerpt(block.said ?? block.text, words))),
      block.kind === "heard" && !page.conversation.readOnly ? h("span", { class: "tools" },
        iconButton("undo", t.rewindTo, () => page.tried(page.again.rewind(block))), iconButton("people", t.fork, () => page.fork(block.seq))) : null)));
    if (!found.length) fill(list, h("li", { class: "empty" }, t.nothingFound));
  }
  return { changed: (screen) => {
    if (screen.done.length === length && screen.done.items === items.source) return;
    length = screen.done.length;
    items = logItems(screen.done).filter((b) => b.kind === "heard" || b.kind === "words");
    items.source = screen.done.items;
    draw();
  } };
}

function excerpt(text, words) {
  const plain = onOneLine(text.replace(/\s+/g, " "));
  const at = words ? Math.max(0, plain.toLowerCase().indexOf(words) - 30) : 0;
  return `${at ? "…" : ""}${plain.slice(at, at + 140)}`;
}
