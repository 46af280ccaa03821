// The settings: a dialog with sections. What a section shows is in a module of its own; what it
// changes, the server changes by the functions of the command line.

import { fill, h, iconButton } from "../dom.js";
import { agents, notes, skills } from "./knowledge.js";
import { mcp } from "./mcp.js";
import { models } from "./models.js";
import { rules } from "./rules.js";
import { schedules } from "./schedules.js";

const SECTIONS = { models, rules, mcp, skills, agents, notes, schedules };
const OPENED = "refold-settings"; // the section that was shown last, in this browser

/**
 * Show the settings. `page` has `texts`, `folder()`: the directory of the open conversation, or
 * "", `say(text)`, and `modelsChanged()`.
 */
export class Settings {
  constructor(page) {
    this.page = page;
  }

  open(name = localStorage.getItem(OPENED) ?? "") {
    const t = this.page.texts.settings;
    const names = Object.keys(SECTIONS);
    this.body = h("div", { class: "settings-body", role: "tabpanel", tabindex: "0", id: "settings-body" });
    this.tabs = h("div", { class: "settings-tabs", role: "tablist", "aria-label": t.title, on: { keydown: (event) => this.key(event, names) } },
      names.map((each) => h("button", {
        type: "button", role: "tab", id: `settings-${each}`, "aria-controls": "settings-body", on: { click: () => this.show(each) },
      }, t.sections[each])));
    this.dialog = h("dialog", { class: "dialog settings", "aria-label": t.title, on: { close: () => this.dialog.remove() } },
      h("header", {}, h("h2", {}, t.title), iconButton("close", this.page.texts.close, () => this.dialog.close())),
      h("div", { class: "settings-main" }, this.tabs, this.body));
    document.body.append(this.dialog);
    this.dialog.showModal();
    this.show(names.includes(name) ? name : names[0]);
    this.tabs.querySelector("[aria-selected=true]").focus();
  }

  show(name) {
    localStorage.setItem(OPENED, name);
    for (const button of this.tabs.children) {
      const here = button.id === `settings-${name}`;
      button.setAttribute("aria-selected", String(here));
      button.tabIndex = here ? 0 : -1;
      if (here) button.scrollIntoView({ block: "nearest", inline: "nearest" });
    }
    this.body.setAttribute("aria-labelledby", `settings-${name}`);
    const place = h("div", { class: "settings-section" }, h("p", { class: "empty" }, this.page.texts.loading));
    fill(this.body, place);
    this.body.scrollTop = 0;
    SECTIONS[name](place, this.page).catch((error) => {
      fill(place, h("p", { class: "problem", role: "alert" }, this.page.texts.dialogFailed(error.message)));
    });
  }

  key(event, names) {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const at = [...this.tabs.children].findIndex((button) => button.tabIndex === 0);
    this.show(names[(at + step + names.length) % names.length]);
    this.tabs.querySelector("[aria-selected=true]").focus();
  }
}
