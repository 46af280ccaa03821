// The dialog for a new chat: where it works, and what it begins with.

import { ask, checkbox, choice, field } from "./dialogs.js";
import { h } from "./dom.js";
import { folderField } from "./folders.js";

/** A new chat, with what a person chose. Resolves to the body of the request, or null. */
export function askNewChat(texts, offers, create, all) {
  const t = texts;
  const usual = (list) => [["", t.asSet], ...list.map((each) => [each.name, each.about ? `${each.name}: ${each.about}` : each.name])];
  const inputs = {
    preset: choice("preset", usual(offers.presets)), agent: choice("agent", usual(offers.agents)),
    model: choice("model", usual(offers.models)), mode: choice("mode", [["", t.asSet], ...Object.entries(t.modes)]),
    effort: choice("effort", [["", t.asSet], ...["low", "medium", "high", "max"].map((e) => [e, e])]),
    system_prompt: h("textarea", { name: "system_prompt", rows: "3" }),
  };
  const flags = {
    trust: checkbox(t.trust, "trust"),
    log_requests: checkbox(t.logRequests, "log_requests"), teams: checkbox(t.options.teams, "teams"),
  };
  const row = (...fields) => h("div", { class: "fields" }, fields);
  const folder = folderField(t);
  const first = [folder.element,
    row(field(t.preset, inputs.preset), field(t.mode, inputs.mode))];
  const rest = [row(field(t.agent, inputs.agent), field(t.model, inputs.model), field(t.effort, inputs.effort)),
    field(t.systemPrompt, inputs.system_prompt), flags.trust, flags.teams, flags.log_requests];
  return ask({
    title: t.newChat, texts: t, action: t.start,
    body: [...first, all ? rest : h("details", {}, h("summary", {}, t.more), rest)],
    submit: () => {
      const wanted = folder.wanted();
      for (const [name, input] of Object.entries(inputs)) if (input.value.trim()) wanted[name] = input.value.trim();
      for (const [name, label] of Object.entries(flags)) if (label.firstChild.checked) wanted[name] = true;
      return create(wanted);
    },
  });
}
