// The files of a conversation's workspace: folders, downloads and uploads. How some kinds are shown
// is in `previews.js`.

import * as api from "./api.js";
import { fill, h, icon } from "./dom.js";
import { onOneLine } from "./escape.js";
import { previewButton } from "./previews.js";
import { rootOf } from "./nodes.js";

/** Return the entries of a folder: [{name, folder, size}], folders first. */
export async function listFolder(id, folder) {
  const found = await api.get(`${api.of(rootOf(id), "files")}?path=${encodeURIComponent(folder)}`);
  return found.map((row) => ({
    name: row.name, folder: row.kind === "directory", size: row.size,
  })).sort((a, b) => Number(b.folder) - Number(a.folder) || a.name.localeCompare(b.name));
}

/** Return the folder with which all these paths begin; "" for none. */
export function commonFolder(paths) {
  const [first] = paths[0].split("/");
  return paths.every((path) => path.startsWith(`${first}/`)) ? first : "";
}

export const addressOf = (id, path) => api.of(rootOf(id), "files", path);

/** Return a link that downloads a file. */
export function downloadLink(id, path, texts, words = path) {
  return h("a", {
    class: "file-link", href: addressOf(id, path), download: path.split("/").pop(),
  }, h("span", { class: "unseen" }, texts.download), words);
}

export class FilesPanel {
  constructor(element, texts, id, say) {
    Object.assign(this, { element, texts, id, say, folder: "", beginReading: api.readings() });
    this.list = h("ul", { class: "files" });
    this.problem = h("p", { class: "problem", role: "alert", hidden: true });
    this.where = h("p", { class: "where" });
    this.picker = h("input", {
      type: "file", multiple: true, class: "unseen", "aria-label": texts.upload, tabindex: "-1",
      on: { change: () => this.upload([...this.picker.files]) },
    });
    this.hidden = h("button", { type: "button", class: "button quiet show-hidden", hidden: true, on: { click: () => {
      this.showsHidden = true;
      this.show();
    } } }, texts.showHidden);
    fill(element, h("div", { class: "panel-tools" }, this.where,
      h("button", { type: "button", class: "button", on: { click: () => this.picker.click() } }, texts.upload), this.picker),
    this.problem, this.list, this.hidden);
    this.show();
  }

  async show(folder = this.folder) {
    const isLast = this.beginReading();
    try {
      const all = await listFolder(this.id, folder);
      if (!isLast()) return;
      const rows = all.filter((row) => this.showsHidden || !this.texts.showHidden || !row.name.startsWith("."));
      this.hidden.hidden = rows.length === all.length;
      this.folder = folder;
      this.where.textContent = folder ? `/${onOneLine(folder)}` : "/";
      const up = folder ? [this.folderRow("..", folder.split("/").slice(0, -1).join("/"), this.texts.upFolder)] : [];
      const path = (name) => (folder ? `${folder}/${name}` : name);
      fill(this.list, up, rows.map((row) => (row.folder
        ? this.folderRow(row.name, path(row.name)) : this.fileRow(row, path(row.name)))));
      if (!rows.length && !folder) fill(this.list, h("li", { class: "empty" }, this.texts.emptyFolder));
      this.problem.hidden = true;
    } catch (error) {
      this.complain(error);
    }
  }

  folderRow(name, folder, label) {
    return h("li", {}, h("button", {
      type: "button", class: "file-link", "aria-label": label, on: { click: () => this.show(folder) },
    }, icon(name === ".." ? "undo" : "folder"), h("span", {}, onOneLine(name))));
  }

  fileRow(row, path) {
    return h("li", { class: "file-row" }, downloadLink(this.id, path, this.texts, [icon("file"), h("span", {}, onOneLine(row.name)),
      h("small", {}, bytes(row.size))]), previewButton(this.id, path, this.texts));
  }

  async upload(files) {
    this.picker.value = "";
    for (const file of files) {
      try {
        const path = this.folder ? `${this.folder}/${file.name}` : file.name;
        const done = await api.putBeside(addressOf(this.id, path), await file.arrayBuffer());
        this.say(this.texts.uploaded(done.path.split("/").pop(), file.name));
      } catch (error) {
        this.complain(error);
        return;
      }
    }
    await this.show();
  }

  complain(error) {
    this.problem.hidden = false;
    this.problem.textContent = this.texts.dialogFailed(error.message);
  }
}

export function bytes(size) {
  if (size < 1000) return `${size} B`;
  return size < 1e6 ? `${(size / 1000).toFixed(1)} kB` : `${(size / 1e6).toFixed(1)} MB`;
}
