// The sections of skills, agents and notes.

import * as api from "../api.js";
import { checkbox, field } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { exact, onOneLine } from "../escape.js";
import { act, form, inFolder, outcome, part, row, rows } from "./parts.js";

const PATH = "/api/settings";

export async function skills(place, page) {
  const t = page.texts.settings.skills;
  const list = await api.get(inFolder(`${PATH}/skills`, page));
  const into = outcome();
  const items = list.skills.map((skill) => {
    const text = h("pre", { class: "settings-text", hidden: true });
    const show = act(t.show, async () => {
      if (!text.textContent) text.textContent = exact((await api.get(inFolder(`${PATH}/skills/${encodeURIComponent(skill.name)}`, page))).text);
      text.hidden = !text.hidden;
      show.setAttribute("aria-expanded", String(!text.hidden));
    }, { into, page });
    const made = row(onOneLine(skill.name), [onOneLine(skill.description), skill.where, skill.shown ? "" : t.byHand].filter(Boolean).join(" · "), show);
    made.append(text);
    return made;
  });
  fill(place, h("p", { class: "settings-about" }, t.about), rows(items, t.none), into.element, warnings(list.notices));
}

export async function agents(place, page) {
  const t = page.texts.settings.agents;
  const list = await api.get(inFolder(`${PATH}/agents`, page));
  fill(place, h("p", { class: "settings-about" }, t.about),
    rows(list.agents.map((agent) => row(onOneLine(agent.name), [onOneLine(agent.description), t.uses[agent.use], agent.where].filter(Boolean).join(" · "))), ""),
    warnings(list.notices));
}

export async function notes(place, page) {
  const t = page.texts.settings.notes;
  const { on, notes: all } = await api.get(inFolder(`${PATH}/notes`, page));
  const into = outcome();
  const redraw = () => notes(place, page);
  const groups = ["project", "person"].map((whose) => {
    const own = all.filter((note) => note.whose === whose);
    return own.length ? part(t.whose[whose], rows(own.map((note) => row(onOneLine(note.text), note.section ? onOneLine(note.section) : "",
      act(t.forget, async () => {
        await api.remove(inFolder(`${PATH}/notes?text=${encodeURIComponent(note.text)}`, page));
        page.say(t.forgotten);
        await redraw();
      }, { into, page, kind: "quiet" }))), "")) : null;
  });
  const text = h("textarea", { rows: "2", required: true, maxlength: "500" });
  const added = outcome();
  fill(place, h("p", { class: "settings-about" }, t.about), memory(on, redraw, page),
    all.length ? groups : h("p", { class: "empty" }, t.none), into.element,
    part(t.add, form(t.addIt, field(t.text, text), async () => {
      const { text: said } = await api.post(inFolder(`${PATH}/notes`, page), { text: text.value.trim() });
      page.say(said);
      await redraw();
    }, { into: added, page }), added.element));
}

function memory(on, redraw, page) {
  const t = page.texts.settings.notes;
  const into = outcome();
  const box = checkbox(t.use, "memory", on);
  box.firstChild.addEventListener("change", async () => {
    try {
      await api.put(inFolder(`${PATH}/memory`, page), null, { on: box.firstChild.checked });
      await redraw();
    } catch (error) {
      into.show(error.message, "problem");
    }
  });
  return h("div", {}, box, into.element);
}

const warnings = (notices) => notices.map((notice) => h("p", { class: "warning" }, onOneLine(notice)));
