// The section of schedules: work for later, by itself. The server runs what is due.

import * as api from "../api.js";
import { choice, field } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { onOneLine } from "../escape.js";
import { act, form, inFolder, lines, outcome, part, row, rows } from "./parts.js";

const PATH = "/api/settings/schedules";

export async function schedules(place, page) {
  const t = page.texts.settings.schedules;
  const all = await api.get(PATH);
  const into = outcome();
  const redraw = () => schedules(place, page);
  const items = all.map((one) => row(onOneLine(one.prompt.slice(0, 200)),
    [one.when, one.next ? t.next(one.next) : "", one.directory, one.last ? t.last(one.last, one.outcome) : ""].filter(Boolean).join(" · "),
    one.session ? h("a", { class: "button quiet", href: `?c=${encodeURIComponent(one.session)}` }, t.open) : null,
    act(t.stop, async () => {
      await api.remove(`${PATH}/${one.id}`);
      page.say(t.stopped);
      await redraw();
    }, { into, page, kind: "quiet" })));
  fill(place, h("p", { class: "settings-about" }, t.about), rows(items, t.none), into.element, newSchedule(redraw, page));
}

function newSchedule(redraw, page) {
  const t = page.texts.settings.schedules;
  const into = outcome();
  const prompt = h("textarea", { rows: "3", required: true });
  const kind = choice("kind", [["every", t.every], ["at", t.at]], "every");
  const when = h("input", { type: "text", required: true, autocomplete: "off", spellcheck: "false", maxlength: "200" });
  const hint = h("small", {});
  const allow = h("textarea", { rows: "2", spellcheck: "false" });
  const dollars = h("input", { type: "number", min: "0.01", step: "any", inputmode: "decimal" });
  const show = () => fill(hint, kind.value === "at" ? t.atHint : t.everyHint);
  kind.addEventListener("change", show);
  show();
  return part(t.add, form(t.addIt, [
    field(t.prompt, prompt), h("div", { class: "fields" }, field(t.kind, kind), h("label", { class: "field" }, h("span", {}, t.when), when, hint)),
    field(t.allow, allow, t.allowHint), field(t.dollars, dollars, t.dollarsHint),
  ], async () => {
    await api.post(inFolder(PATH, page), {
      prompt: prompt.value.trim(), [kind.value]: when.value.trim(), allow: lines(allow.value), ...(dollars.value ? { dollars: Number(dollars.value) } : {}),
    });
    page.say(t.added);
    await redraw();
  }, { into, page }), into.element);
}
