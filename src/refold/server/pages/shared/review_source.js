// Where a review has its changes from: the workspace, which the server compares; or, on a page
// whose server sees no workspace, what the tools recorded in the conversation.

import * as api from "./api.js";
import { logItems } from "./reducer.js";

/** `list(since)`, `lines(since, paths)` and `commits()` are promises; since is {kind, value}. */
export function sourceOf(conversation) {
  return api.hasPeople() ? new RecordedChanges(conversation) : new WorkspaceChanges(conversation.id);
}

class WorkspaceChanges {
  constructor(id) {
    this.id = id;
    this.canUndo = true;
  }

  list(since) {
    return api.get(`${api.of(this.id, "changes")}?${query(since)}`);
  }

  lines(since, paths) {
    return api.get(`${api.of(this.id, "changes", "lines")}?${query(since)}&${paths.map((path) => `path=${encodeURIComponent(path)}`).join("&")}`);
  }

  commits() {
    return api.get(api.of(this.id, "commits"));
  }
}

const query = ({ kind, value }) => `${kind}=${encodeURIComponent(value)}`;

class RecordedChanges {
  constructor(conversation) {
    this.conversation = conversation;
    this.canUndo = false;
    this.files = new Map();
  }

  async list({ value }) {
    await this.conversation.readAll();
    const { screen } = this.conversation;
    this.files = recordedChanges(logItems(screen.done), Number(value), screen.directory);
    return [...this.files.values()];
  }

  async lines(since, paths) {
    return paths.map((path) => this.files.get(path)).filter(Boolean);
  }

  async commits() {
    return [];
  }
}

/** Return the files that calls changed from this event on, by path, with their diffs in order. Pure. */
export function recordedChanges(blocks, since, directory) {
  const files = new Map();
  const diffs = blocks.filter((b) => b.kind === "called" && !b.rewound && b.seq >= since).flatMap((b) => b.diffs);
  for (const { path: full, kind, text } of diffs) {
    const path = full.startsWith(`${directory}/`) ? full.slice(directory.length + 1) : full;
    const before = files.get(path);
    const count = (sign) => text.split("\n").filter((line) => line.startsWith(sign)).length;
    files.set(path, {
      path, kind: kind === "changed" ? before?.kind ?? kind : kind, text: [before?.text, text].filter(Boolean).join("\n"),
      added: (before?.added ?? 0) + count("+"), removed: (before?.removed ?? 0) + count("-"), event: 0,
    });
  }
  return files;
}
