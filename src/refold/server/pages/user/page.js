// The user page: the skin in plain words. What both pages do is in `shared/shell.js`.

import { fill, h, icon } from "../shared/dom.js";
import { onOneLine } from "../shared/escape.js";
import { historyPanel, todosPanel } from "../shared/panels.js";
import { startPage } from "../shared/shell.js";
import { user as texts } from "../shared/texts.js";
import { backgroundPanel, tasksPanel, teamPanel } from "../shared/work.js";
import { aboutPanel, kindOf, labelOf, renderBlock, renderComing, subject } from "./blocks.js";

startPage({
  texts, renderBlock, renderComing, labelOf, kindOf, subject, otherPage: "/dev", theme: "system", meterPanel: "about", limits: ["dollars"],
  panels: {
    todos: (element) => todosPanel(element, texts),
    tasks: (element, page) => tasksPanel(element, page, texts),
    team: (element, page) => teamPanel(element, page, texts),
    background: (element, page) => backgroundPanel(element, page, texts),
    history: (element, page) => historyPanel(element, page, texts),
    about: (element) => aboutPanel(element),
  },
  brand: () => h("span", { class: "brand-name" }, h("span", { class: "brand-leaf" }, icon("leaf")), texts.product),
  welcome: ({ use }) => h("div", { class: "welcome" }, h("span", { class: "welcome-leaf" }, icon("leaf")),
    h("h2", {}, texts.welcome), h("p", {}, texts.welcomeMore),
    h("ul", { class: "ideas" }, texts.ideas.map((idea) => h("li", {},
      h("button", { type: "button", on: { click: () => use(idea) } }, idea))))),
  showStatus(element, screen, words) {
    const key = `${words} ${Boolean(screen.turn)}`;
    if (element.dataset.key === key) return;
    element.dataset.key = key;
    fill(element, words ? h("span", { class: `doing${screen.turn ? " is-busy" : ""}` },
      screen.turn ? h("span", { class: "sway", "aria-hidden": "true" }, icon("leaf")) : null, words) : null);
  },
  showChips(element, screen, page) {
    const { mode } = screen.choices;
    const key = JSON.stringify([mode, screen.address]);
    if (element.dataset.key === key) return;
    element.dataset.key = key;
    const modes = h("select", { on: { change: () => page.tried(page.order({ type: "set_mode", mode: modes.value })) } },
      Object.entries(texts.modes).map(([name, words]) => h("option", { value: name, selected: name === mode }, words)));
    fill(element, mode ? h("label", { class: "chip" }, h("span", {}, texts.mode), modes) : null,
      screen.address ? h("span", { class: "chip", title: texts.folders.elsewhere }, onOneLine(screen.address)) : null);
  },
});
