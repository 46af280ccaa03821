// Where a new chat works: the usual folder, a recent one, one that is picked, or a new one with a
// name, or a workspace elsewhere. A path can be typed, too; the server says what is allowed.

import * as api from "./api.js";
import { checkbox, field } from "./dialogs.js";
import { fill, h, icon } from "./dom.js";
import { onOneLine } from "./escape.js";

const RECENT = 5; // shown as buttons

/** `element`, and `wanted()`: what the request for a new chat says of the folder. */
export function folderField(texts) {
  const t = texts.folders;
  const path = h("input", { type: "text", name: "workspace", autocomplete: "off", spellcheck: "false" });
  const own = checkbox(texts.ownWorkspace, "own_workspace");
  const name = h("input", { type: "text", name: "workspace_name", autocomplete: "off", maxlength: "60" });
  const named = field(t.name, name, t.nameHint);
  named.hidden = true;
  const hint = h("small", {}, api.hasPeople() ? texts.people.workspaceHint : texts.workspaceHint);
  const recent = h("div", { class: "folder-recent", role: "group", "aria-label": t.recent, hidden: true });
  const elsewhere = h("div", { class: "folder-recent", role: "group", "aria-label": t.elsewhere, hidden: true });
  const picker = h("div", { class: "folder-picker", hidden: true });
  const browse = h("button", { type: "button", class: "button", "aria-expanded": "false", hidden: api.hasPeople(), on: { click: () => toggle() } }, icon("folder"), t.browse);
  const choose = (value) => {
    path.value = value;
    for (const button of [...recent.children, ...elsewhere.querySelectorAll("button")]) button.setAttribute("aria-pressed", String(button.dataset.path === value));
  };
  const none = { usual: "", roots: [], recent: [], elsewhere: [] }; // a path can still be typed
  const known = api.hasPeople() ? Promise.resolve(none) : api.get("/api/folders").catch(() => none);
  const toggle = async (open = picker.hidden) => {
    picker.hidden = !open;
    browse.setAttribute("aria-expanded", String(open));
    if (!open) return;
    const { usual, roots } = await known;
    showFolder(picker, path.value.trim() || usual, roots, choose, t);
  };
  const change = () => {
    const { checked } = own.firstChild;
    named.hidden = !checked;
    for (const each of [path, browse]) each.disabled = checked;
    recent.hidden = checked || !recent.children.length;
    elsewhere.hidden = checked || !elsewhere.children.length;
    if (checked) {
      choose("");
      toggle(false);
      name.focus();
    }
  };
  own.firstChild.addEventListener("change", change);
  path.addEventListener("input", () => choose(path.value));
  known.then((found) => {
    path.placeholder = onOneLine(found.usual);
    const choice = (each, name) => h("button", {
      type: "button", class: "button quiet", title: onOneLine(each.path), "aria-pressed": "false", data: { path: each.path }, on: { click: () => choose(each.path) },
    }, icon(name), onOneLine(each.name));
    fill(recent, found.recent.filter((each) => each.path !== found.usual).slice(0, RECENT).map((each) => choice(each, "folder")));
    recent.hidden = !recent.children.length;
    if (found.elsewhere.length) fill(elsewhere, h("span", { class: "folder-where" }, t.elsewhere), found.elsewhere.map((each) => choice(each, "server")));
    elsewhere.hidden = !elsewhere.children.length;
    if (found.free_addresses) hint.textContent = t.addressHint;
  });
  const element = h("div", { class: "folder-field" },
    h("div", { class: "folder-row" }, h("label", { class: "field" }, h("span", {}, texts.workspace), path, hint), browse), recent, elsewhere, picker, own, named);
  const wanted = () => (own.firstChild.checked
    ? { own_workspace: true, ...(name.value.trim() ? { workspace_name: name.value.trim() } : {}) }
    : path.value.trim() ? { workspace: path.value.trim() } : {});
  return { element, wanted };
}

/** Show the folders in a folder; the roots if it cannot be listed. */
async function showFolder(place, path, roots, choose, t) {
  const list = path ? await api.get(`/api/folders/list?path=${encodeURIComponent(path)}`).catch(() => null) : null;
  const go = (to) => showFolder(place, to, roots, choose, t);
  const row = (label, to, name = "folder") => h("li", {}, h("button", { type: "button", class: "file-link", on: { click: () => go(to) } }, icon(name), h("span", {}, label)));
  const focus = place.contains(document.activeElement);
  if (!list) {
    fill(place, h("p", { class: "folder-where" }, t.roots), h("ul", {}, roots.map((root) => row(onOneLine(root.path), root.path))));
  } else {
    choose(list.path);
    fill(place, h("p", { class: "folder-where", role: "status" }, onOneLine(list.path)),
      h("ul", {}, list.parent ? row(t.up, list.parent, "undo") : roots.length > 1 ? row(t.others, "", "undo") : null,
        list.folders.map((folder) => row(onOneLine(folder.name), folder.path))),
      list.folders.length ? null : h("p", { class: "empty" }, t.none), list.more ? h("p", { class: "empty" }, t.more) : null);
  }
  if (focus) place.querySelector("button")?.focus();
}
