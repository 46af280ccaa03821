// Comments on changed lines that are not sent yet: they survive a reload, as drafts do.

import { Drafts } from "./drafts.js";

const KEY = "refold-comments";

export class Comments {
  /** A comment has path, side ("old" or "now"), line, text (of that line) and words. */
  constructor(id, drafts = new Drafts(localStorage, KEY)) {
    this.id = id;
    this.drafts = drafts;
  }

  all() {
    try {
      const comments = JSON.parse(this.drafts.get(this.id) || "[]");
      return Array.isArray(comments) ? comments.sort(inOrder) : [];
    } catch {
      return [];
    }
  }

  of(path) {
    return this.all().filter((comment) => comment.path === path);
  }

  /** Keep it, instead of `before`. */
  put(comment, before = null) {
    this.write([...this.all().filter((each) => !before || !same(each, before)), comment]);
  }

  drop(comment) {
    this.write(this.all().filter((each) => !same(each, comment)));
  }

  clear() {
    this.write([]);
  }

  write(comments) {
    this.drafts.set(this.id, comments.length ? JSON.stringify(comments) : "");
  }
}

const same = (a, b) => ["path", "side", "line", "words"].every((name) => a[name] === b[name]);

function inOrder(a, b) {
  if (a.path !== b.path) return a.path < b.path ? -1 : 1;
  return a.line - b.line;
}
