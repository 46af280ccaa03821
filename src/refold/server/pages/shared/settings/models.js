// The section of models: which one answers, keys of providers, and models of this machine. A key
// that was typed is sent once, and never comes back.

import * as api from "../api.js";
import { field } from "../dialogs.js";
import { fill, h } from "../dom.js";
import { onOneLine } from "../escape.js";
import { act, form, outcome, part, row, rows } from "./parts.js";

const PATH = "/api/settings";
const LOOK_MS = 700; // between two looks at a download

// Why a turn failed, where a key or another model is the remedy.
const MODEL_FAILURES = /refused (the key|to give access)|not enough credit|there is no key|no model|does not know the model|There is no .* API/;

export const aboutModels = (reason = "") => MODEL_FAILURES.test(reason);

export async function models(place, page, said = "") {
  const t = page.texts.settings.models;
  const [choice, providers, embedded] = await Promise.all([
    api.get(`${PATH}/model`), api.get(`${PATH}/providers`), api.get(`${PATH}/embedded`),
  ]);
  const changed = async (news = "") => {
    await page.modelsChanged();
    await models(place, page, news);
    place.parentElement.scrollTop = 0; // where the news stands
    if (news) page.say(news);
  };
  const use = async (name) => {
    await api.put(`${PATH}/model`, null, { model: name });
    await changed(t.chosen(name));
  };
  fill(place, said ? h("p", { class: "settings-outcome good" }, said) : null, current(choice, use, page), keys(providers, changed, page), here(embedded, choice, use, changed, page));
}

function current(choice, use, page) {
  const t = page.texts.settings.models;
  const into = outcome();
  const list = h("datalist", { id: "model-names" }, choice.names.map((name) => h("option", { value: name })));
  const input = h("input", { type: "text", value: choice.model, list: list.id, autocomplete: "off", spellcheck: "false", required: true });
  const none = Boolean(choice.problem);
  return part(t.current, none ? h("p", { class: "warning" }, choice.model ? t.unusable(choice.model, choice.problem) : t.none) : null,
    none && !choice.model ? null : [form(page.texts.save, [field(t.name, input, t.nameHint), list], () => use(input.value.trim()), { into, page }), into.element]);
}

function keys(providers, changed, page) {
  const t = page.texts.settings.models;
  const into = outcome();
  const stored = providers.filter((each) => each.source);
  const items = stored.map((each) => row(each.label, [each.ends, t.sources[each.source] ?? each.source, each.variable].filter(Boolean).join(" · "),
    act(t.check, async () => {
      const { good, text } = await api.post(`${PATH}/providers/${encodeURIComponent(each.name)}/check`);
      if (!good) throw new Error(text);
      return text;
    }, { into, page }),
    ["file", "keyring"].includes(each.source) ? act(t.remove, async () => {
      await api.remove(`${PATH}/providers/${encodeURIComponent(each.name)}/key`);
      await changed();
    }, { into, page, kind: "quiet" }) : null));
  return part(t.keys, stored.length ? [rows(items, ""), into.element] : h("p", { class: "settings-about" }, t.keysAbout), newKey(providers, changed, page));
}

function newKey(providers, changed, page) {
  const t = page.texts.settings.models;
  const into = outcome();
  const which = h("select", {}, providers.map((each) => h("option", { value: each.name }, each.label)));
  const key = h("input", { type: "password", autocomplete: "off", spellcheck: "false", required: true, maxlength: "4096" });
  const made = h("small", {});
  const unchecked = act(t.unchecked, () => store(true), { into, page });
  unchecked.hidden = true;
  const chosen = () => providers.find((each) => each.name === which.value) ?? {};
  const show = () => {
    const { key_page: address, label } = chosen();
    fill(made, address ? [t.madeAt, " ", h("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, address)] : t.noPage(label ?? ""));
  };
  const store = async (anyway = false) => {
    const { stored, text, notices, model } = await api.put(`${PATH}/providers/${encodeURIComponent(which.value)}/key`, null, {
      key: key.value, ...(anyway ? { unchecked: true } : {}),
    }).catch((error) => { throw new Error(t.keyRefused(chosen().label, error.message)); });
    unchecked.hidden = stored;
    if (!stored) throw new Error(text);
    await changed([t.stored(model), ...notices.map(t.keyNotice)].filter(Boolean).join(" "));
  };
  which.addEventListener("change", show);
  show();
  return h("details", { class: "settings-more", open: providers.every((each) => !each.source) }, h("summary", {}, t.add),
    form(t.store, [h("div", { class: "fields" }, field(t.provider, which), field(t.key, key, t.keyHint)), made], () => store(), { into, page }),
    into.element, unchecked);
}

function here({ models: all, servers, runtime, machine }, choice, use, changed, page) {
  const t = page.texts.settings.models;
  const into = outcome();
  const useIt = (name) => (name === choice.model ? h("span", { class: "tag" }, t.inUse) : act(t.use, () => use(name), { into, page }));
  const answering = servers.flatMap(({ label, models: names }) => names.map((name) => row(onOneLine(name), t.servedBy(label), useIt(name))));
  const own = all.map((model) => embedded(model, useIt, { into, page, changed }));
  return part(t.here, h("p", { class: "settings-about" }, t.hereAbout(`${machine[0].toUpperCase()}${machine.slice(1)}.`)), runtime ? h("p", { class: "warning" }, t.noRuntime(runtime)) : null,
    rows([...answering, ...own], ""), into.element);
}

function embedded(model, useIt, { into, page, changed }) {
  const t = page.texts.settings.models;
  const address = `${PATH}/embedded/${encodeURIComponent(model.name)}`;
  const place = h("li", { class: "settings-row" });
  const draw = (now) => {
    const { download } = now;
    const running = download && !download.ended;
    const about = running ? t.loading(size(download.done), size(download.total))
      : now.installed ? t.installed(size(now.size)) : t.offered(size(now.size), size(now.memory), now.fit);
    const buttons = running ? [act(t.stop, () => api.remove(address).then(() => ""), { into, page })]
      : now.installed ? [useIt(`local/${now.name}`), act(t.remove, async () => {
        await api.remove(address);
        await changed();
      }, { into, page, kind: "quiet" })]
        : [act(now.partial ? t.resume : t.download, async () => {
          await api.post(address);
          watch();
        }, { into, page })];
    fill(place, h("div", { class: "settings-what" }, h("strong", {}, now.name), h("small", {}, about),
      running ? h("progress", { max: String(download.total), value: String(download.done), "aria-label": now.name }) : null,
      download?.ended && download.problem ? h("small", { class: "problem", role: "alert" }, download.problem) : null),
    h("div", { class: "settings-actions" }, buttons));
  };
  const watch = async () => {
    const now = await api.get(address).catch(() => null);
    if (!now || !place.isConnected) return;
    draw(now);
    if (now.download && !now.download.ended) setTimeout(watch, LOOK_MS);
    else if (now.installed) {
      await changed(t.ready(now.name));
    }
  };
  draw(model);
  if (model.download && !model.download.ended) setTimeout(watch, LOOK_MS);
  return place;
}

const size = (bytes) => (bytes >= 1e9 ? `${(bytes / 1e9).toFixed(1)} GB` : `${Math.round(bytes / 1e6)} MB`);
