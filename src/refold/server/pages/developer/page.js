// The developer page: the skin that shows every frame and figure. What both pages do is in
// `shared/shell.js`; panels are in `panels.js`, blocks in `blocks.js`.

import { dollars, duration, fill, h, icon, short } from "../shared/dom.js";
import { onOneLine } from "../shared/escape.js";
import { startPage } from "../shared/shell.js";
import { developer as common } from "../shared/texts.js";
import { labelOf, renderBlock, renderComing, subject } from "./blocks.js";
import { panels as always, terminal } from "./panels.js";

const HAS_TERMINAL = "terminal" in document.documentElement.dataset; // as the server was started
const texts = HAS_TERMINAL ? { ...common, panels: { ...common.panels, terminal: common.terminal.title } } : common;
const panels = HAS_TERMINAL ? { ...always, terminal } : always;
let clock = 0;

startPage({
  texts, renderBlock, renderComing, labelOf, subject, panels,
  otherPage: "/", theme: "dark", meterPanel: "usage", allCommands: true, allFields: true, panelFirst: true, limits: ["dollars", "tokens", "calls", "seconds"], showNotices: true,
  brand: () => h("span", { class: "brand-name" }, icon("leaf"), texts.product, h("small", {}, "dev")),
  welcome: () => h("div", { class: "welcome" }, h("h2", {}, texts.welcome), h("p", {}, texts.welcomeMore),
    h("dl", { class: "keys" }, [["j k", "next, previous block"], ["/", "message box"], ["Ctrl+K", "conversations"],
      ["p", "details"], ["Ctrl+.", "stop"]].map(([key, what]) => [h("dt", {}, h("kbd", {}, key)), h("dd", {}, what)]))),
  showStatus(element, screen, words) {
    const { input, output, cached } = screen.usage;
    const key = [words, screen.turn, input, output, screen.cost].join();
    if (element.dataset.key === key) return;
    element.dataset.key = key;
    clearInterval(clock);
    const used = texts.tokens(short(input), short(output), cached ? short(cached) : "");
    const time = h("span", { class: "clock" });
    const tick = () => { time.textContent = screen.turnAt ? duration(Math.max(0, Date.now() / 1000 - screen.turnAt)) : ""; };
    if (screen.turn) {
      tick();
      clock = setInterval(tick, 1000);
    }
    fill(element, h("span", { class: `doing${screen.turn ? " is-busy" : ""}` }, words), screen.turn ? time : null,
      h("span", { class: "room" }), h("span", { class: "used" }, used),
      h("span", { class: "used" }, dollars(screen.cost)));
  },
  showChips(element, screen, page) {
    const { mode, model, agent, effort } = screen.choices;
    const key = JSON.stringify([mode, model, agent, effort, screen.address || screen.directory]);
    if (element.dataset.key === key) return;
    element.dataset.key = key;
    const modes = h("select", {
      "aria-label": texts.mode, on: { change: () => page.tried(page.order({ type: "set_mode", mode: modes.value })) },
    }, Object.keys(texts.modes).map((m) => h("option", { value: m, selected: m === mode }, m)));
    const chip = (label, value, kind) => value ? h("button", {
      type: "button", class: "chip", title: label, "aria-label": `${label}: ${value}`, on: { click: () => page.choose(kind, label, value) },
    }, value) : null;
    fill(element, h("span", { class: `chip chip-mode mode-${mode}` }, modes), chip(texts.model, model, "model"),
      chip(texts.agent, agent, "agent"), chip(texts.effort, effort, "effort"),
      screen.directory ? h("span", { class: "chip path", title: texts.workspace }, onOneLine(screen.address || screen.directory)) : null);
  },
});
