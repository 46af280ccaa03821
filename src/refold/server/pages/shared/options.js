// The options of an open conversation: where it works, what a turn may use up, and what is
// switched on or off for it alone. Mode, model, agent and effort are below the message box;
// what a new chat begins with is in `dialogs`.

import { ask, checkbox, field } from "./dialogs.js";
import { h } from "./dom.js";

const LIMITS = ["dollars", "tokens", "calls", "seconds"];

/** Ask for them. `send(order)` is a promise; an order is sent for what was changed. */
export function askOptions(texts, screen, { limits, send }) {
  const t = texts.options;
  const { budget, teams, tracing } = screen.choices;
  const text = (value) => h("input", { type: "text", value, autocomplete: "off", spellcheck: "false" });
  const directory = text(screen.directory);
  const added = h("textarea", { rows: "2", spellcheck: "false" });
  added.value = screen.added.join("\n");
  const numbers = new Map(limits.map((name) => [name, h("input", {
    type: "number", min: name === "dollars" || name === "seconds" ? "0.01" : "1", step: name === "dollars" ? "any" : "1",
    inputmode: "decimal", value: budget[name] == null ? "" : String(budget[name]),
  })]));
  const switches = { teams: checkbox(t.teams, "teams", teams), tracing: checkbox(texts.logRequests, "tracing", tracing) };
  const changes = () => {
    const found = [];
    const more = lines(added.value);
    if (directory.value.trim() !== screen.directory || more.join("\n") !== screen.added.join("\n")) {
      found.push({ type: "set_directory", directory: directory.value.trim(), added: more });
    }
    const limit = Object.fromEntries(LIMITS.map((name) => {
      const typed = numbers.get(name)?.value.trim();
      return [name, typed === undefined ? budget[name] ?? null : typed ? Number(typed) : null];
    }));
    if (LIMITS.some((name) => limit[name] !== (budget[name] ?? null))) found.push({ type: "budget", ...limit });
    const on = (name) => switches[name].firstChild.checked;
    if (on("teams") !== teams) found.push({ type: "toggle_teams", on: on("teams") });
    if (on("tracing") !== tracing) found.push({ type: "toggle_tracing", on: on("tracing") });
    return found;
  };
  return ask({
    title: t.title, texts, action: texts.save,
    body: [field(texts.workspace, directory), field(t.added, added, t.addedHint),
      h("fieldset", {}, h("legend", {}, t.budget), h("div", { class: "fields limits" },
        [...numbers].map(([name, input]) => field(t.limits[name], input))), h("small", { class: "hint" }, t.noLimit)),
      switches.teams, switches.tracing],
    submit: async () => {
      for (const order of changes()) await send(order);
      return true;
    },
  });
}

const lines = (text) => text.split("\n").map((line) => line.trim()).filter(Boolean);
