// Dialogs over the page: a new chat, a name, going back, and yes or no. Each is a native
// `dialog`, which keeps the focus inside, closes with Escape and gives the focus back.

import { h, iconButton } from "./dom.js";

/** Ask in a dialog. `submit` may throw: then what it says is shown, and the dialog stays. */
export function ask({ title, body, action, submit, texts, danger = false }) {
  return new Promise((resolve) => {
    const problem = h("p", { class: "problem", role: "alert", hidden: true });
    const go = h("button", { type: "submit", class: `button ${danger ? "danger" : "primary"}` }, action);
    const dialog = h("dialog", { class: "dialog", "aria-label": title, on: { close: () => done(null) } },
      h("form", {
        on: {
          submit: async (event) => {
            event.preventDefault();
            go.disabled = true;
            try {
              done(await submit());
            } catch (error) {
              problem.hidden = false;
              problem.textContent = texts.dialogFailed(error.message);
              go.disabled = false;
            }
          },
        },
      },
      h("header", {}, h("h2", {}, title), iconButton("close", texts.close, () => dialog.close())),
      h("div", { class: "dialog-body" }, body), problem,
      h("footer", { class: "actions" }, go,
        h("button", { type: "button", class: "button quiet", on: { click: () => dialog.close() } }, texts.cancel))));
    let over = false;
    const done = (value) => {
      if (over) return;
      over = true;
      dialog.close(); // gives the focus back
      dialog.remove();
      resolve(value);
    };
    document.body.append(dialog);
    dialog.showModal();
    dialog.querySelector("[autofocus]")?.focus();
  });
}

/** A labelled field. */
export function field(label, input, hint = "") {
  return h("label", { class: "field" }, h("span", {}, label), input, hint ? h("small", {}, hint) : null);
}

export function checkbox(label, name, checked = false) {
  return h("label", { class: "check" }, h("input", { type: "checkbox", name, checked }), h("span", {}, label));
}

/** A choice. `options` are pairs of value and label. */
export function choice(name, options, value = "") {
  return h("select", { name }, options.map(([key, label]) =>
    h("option", { value: key, selected: key === value }, label)));
}

/** Choose one of `offers`, or type another name. */
export function askChoice(texts, label, value, offers, submit) {
  const list = h("datalist", { id: "offers" }, offers.map((offer) => h("option", { value: offer.name }, offer.about)));
  const input = h("input", {
    type: "text", value, list: list.id, autocomplete: "off", spellcheck: "false", autofocus: true, required: true,
    on: { focus: () => input.select() },
  });
  return ask({
    title: label, texts, action: texts.save, body: [field(label, input), list],
    submit: async () => {
      await submit(input.value.trim());
      return true;
    },
  });
}

/** Go back to before a message. Resolves to which of conversation and files, or null. */
export function askRewind(texts, submit, whats = Object.keys(texts.rewindWhat)) {
  const radios = Object.entries(texts.rewindWhat).filter(([what]) => whats.includes(what)).map(([what, label], n) => h("label", { class: "option" },
    h("input", { type: "radio", name: "what", value: what, checked: n === 0 }), h("span", {}, label)));
  const force = h("input", { type: "checkbox" });
  return ask({
    title: texts.rewindTo, texts, action: texts.rewindTo,
    body: [h("fieldset", {}, radios), h("label", { class: "check" }, force, h("span", {}, texts.rewindForce))],
    submit: async () => {
      const what = radios.map((r) => r.firstChild).find((r) => r.checked).value;
      await submit(what, force.checked);
      return what;
    },
  });
}

/** A new chat, with what a person chose. Resolves to the body of the request, or null. */
export function askNewChat(texts, offers, create, all) {
  const t = texts;
  const usual = (list) => [["", t.asSet], ...list.map((each) => [each.name, each.about ? `${each.name}: ${each.about}` : each.name])];
  const inputs = {
    preset: choice("preset", usual(offers.presets)), agent: choice("agent", usual(offers.agents)),
    model: choice("model", usual(offers.models)), mode: choice("mode", [["", t.asSet], ...Object.entries(t.modes)]),
    effort: choice("effort", [["", t.asSet], ...["low", "medium", "high", "max"].map((e) => [e, e])]),
    workspace: h("input", { type: "text", name: "workspace", autocomplete: "off", spellcheck: "false" }),
    system_prompt: h("textarea", { name: "system_prompt", rows: "3" }),
  };
  const flags = {
    own_workspace: checkbox(t.ownWorkspace, "own_workspace"), trust: checkbox(t.trust, "trust"),
    log_requests: checkbox(t.logRequests, "log_requests"), teams: checkbox(t.options.teams, "teams"),
  };
  const row = (...fields) => h("div", { class: "fields" }, fields);
  const first = [field(t.workspace, inputs.workspace, t.workspaceHint), flags.own_workspace,
    row(field(t.preset, inputs.preset), field(t.mode, inputs.mode))];
  const rest = [row(field(t.agent, inputs.agent), field(t.model, inputs.model), field(t.effort, inputs.effort)),
    field(t.systemPrompt, inputs.system_prompt), flags.trust, flags.teams, flags.log_requests];
  return ask({
    title: t.newChat, texts: t, action: t.start,
    body: [...first, all ? rest : h("details", {}, h("summary", {}, t.more), rest)],
    submit: () => {
      const wanted = {};
      for (const [name, input] of Object.entries(inputs)) if (input.value.trim()) wanted[name] = input.value.trim();
      for (const [name, label] of Object.entries(flags)) if (label.firstChild.checked) wanted[name] = true;
      return create(wanted);
    },
  });
}
