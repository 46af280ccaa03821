// The section of permissions: what runs without a question, what asks, and what never runs.

import * as api from "../api.js";
import { choice, field } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { onOneLine } from "../escape.js";
import { act, form, inFolder, outcome, part, row, rows } from "./parts.js";

const VERDICTS = ["allow", "ask", "deny"];

export async function rules(place, page) {
  const t = page.texts.settings.rules;
  const address = inFolder("/api/settings/rules", page);
  const draw = (list) => {
    const into = outcome();
    const change = async (body, said) => {
      draw(await api.post(address, body));
      page.say(said);
    };
    const groups = VERDICTS.map((verdict) => {
      const own = list.rules.filter((rule) => rule.verdict === verdict);
      return own.length ? part(t.verdicts[verdict], rows(own.map((rule) => row(h("code", {}, onOneLine(rule.text)), t.places[rule.place] ?? rule.source,
        rule.place ? act(t.remove, () => change({ verdict, place: rule.place, old: rule.text }, t.removed), { into, page, kind: "quiet" }) : null)), "")) : null;
    });
    const modes = choice("mode", Object.entries(page.texts.modes).filter(([name]) => name !== "bypass" || name === list.mode), list.mode);
    modes.addEventListener("change", async () => {
      try {
        draw(await api.put(inFolder("/api/settings/mode", page), null, { mode: modes.value }));
        page.say(t.modeChosen);
      } catch (error) {
        into.show(error.message, "problem");
        modes.value = list.mode;
      }
    });
    fill(place, h("p", { class: "settings-about" }, t.about(list.directory)), field(t.mode, modes),
      groups.some(Boolean) ? groups : h("p", { class: "empty" }, t.none), into.element, newRule(change, page));
  };
  draw(await api.get(address));
}

function newRule(change, page) {
  const t = page.texts.settings.rules;
  const into = outcome();
  const verdict = choice("verdict", VERDICTS.map((name) => [name, t.verdicts[name]]), "allow");
  const where = h("select", { name: "place" });
  const places = () => fill(where, ["folder", ...(verdict.value === "allow" ? [] : ["user"])].map((name) => h("option", { value: name }, t.places[name])));
  verdict.addEventListener("change", places);
  places();
  const text = h("input", { type: "text", autocomplete: "off", spellcheck: "false", required: true, maxlength: "1000" });
  return part(t.add, form(t.addIt, [h("div", { class: "fields" }, field(t.verdict, verdict), field(t.where, where)), field(t.rule, text, t.ruleHint)],
    () => change({ verdict: verdict.value, place: where.value, new: text.value.trim() }, t.added), { into, page }), into.element);
}
