// One conversation as a page has it: the connection, the screen that its documents fold to,
// and the orders of a person. A conversation that another process holds is read only: its
// documents come from its journal.

import * as api from "./api.js";
import { Connection, LEFT, NEWEST } from "./connection.js";
import { isNode } from "./nodes.js";
import { UnsentStorage } from "./outbox.js";
import { emptyScreen, reduce, withOlder } from "./reducer.js";

const FRAMES = 2000; // the newest, for the panel of a developer
const BATCH = 12; // milliseconds of folding, before the page may draw
const DRAW = 60; // milliseconds between two drawings, while news comes all the time
// The same while a response streams: drawing takes a twenty-fifth of the time at most.
const DRAW_TEXT = { least: 140, most: 500, share: 25 };
const POLL = 2000;
const PAGE = 1000; // documents of a journal at a time
const OLDER = 1500; // events of a part that is read when a user scrolls up to it
const ALL = 2 ** 31;

export class Conversation {
  /** `on` has changed(screen), state(name, seconds, why), gone(error), held(by), frame(),
   * older(screen, count): the first blocks are new. */
  constructor(id, on) {
    this.id = id;
    this.on = on;
    this.screen = emptyScreen();
    this.frames = [];
    this.queue = [];
    this.readOnly = isNode(id);
    this.why = ""; // what a server said that is there and cannot show it, as when its database is away
    this.caughtUp = false; // is all told that had happened when it was opened?
    this.cost = 0; // milliseconds that the last drawing took
    this.connect();
    this.storage = new UnsentStorage(id);
    this.unsent = []; // messages that the server has not got
    if (!this.readOnly) for (const message of this.storage.read()) this.post(message).catch(() => {});
  }

  connect(after) {
    this.connection = new Connection(`${api.of(this.id)}/ws`, {
      document: (doc, raw) => this.heard(doc, raw),
      state: (name, seconds) => this.closed || this.on.state(name, seconds, name === "online" ? "" : this.why),
      lost: () => this.whyLost(),
      sent: (raw) => this.note("out", raw),
    }, undefined, after);
  }

  heard(doc, raw) {
    if (this.closed) return; // it waits only until its orders are taken
    this.note("in", raw, doc);
    this.queue.push(doc);
    this.schedule();
  }

  /** Documents come faster than a page can draw: they are folded in batches. */
  schedule() {
    if (this.scheduled) return;
    this.scheduled = true;
    const since = performance.now() - (this.drawn ?? 0);
    setTimeout(() => {
      this.scheduled = false;
      this.fold();
    }, this.caughtUp ? Math.max(0, this.pause() - since) : 0);
  }

  /** Milliseconds between two drawings. */
  pause() {
    const { least, most, share } = DRAW_TEXT;
    return this.screen.coming.length ? Math.min(most, Math.max(least, this.cost * share)) : DRAW;
  }

  fold() {
    const begun = performance.now();
    const until = begun + BATCH;
    let at = 0;
    while (at < this.queue.length && (at % 64 || performance.now() < until)) {
      this.take(this.queue[at]);
      at += 1;
    }
    this.queue.splice(0, at);
    if (this.closed) return; // a copy of it is open now
    if (this.caughtUp) this.on.changed(this.screen);
    this.drawn = performance.now();
    this.measure(this.drawn - begun);
    if (this.queue.length) this.schedule();
  }

  // The time of a drawing is that of the script and of the browser until the next task.
  measure(script) {
    requestAnimationFrame(() => {
      const begun = performance.now();
      setTimeout(() => { this.cost = script + performance.now() - begun; });
    });
  }

  take(doc) {
    if (doc.type === "snapshot" && doc.id && !this.ordered) return this.startAnew();
    this.ordered = doc.type === "snapshot" ? false : this.ordered;
    if (doc.type === "status") this.caughtUp = true;
    if (doc.type === "fork_made") this.on.forked(doc.session_id);
    this.screen = reduce(this.screen, doc);
    this.rewound ||= doc.type === "rewound";
    if (this.caughtUp && !this.readOnly) this.askForState(doc);
    return undefined;
  }

  // A snapshot has what no document of an event has: todos and a plan after a rewind, and the context.
  askForState({ type }) {
    if (type === "model_changed") this.sized = false;
    const isFirst = type === "assistant_message" && !this.sized;
    if (this.rewound) {
      this.rewound = false;
      this.ordered = true;
      this.send({ type: "snapshot" }).catch(() => {});
    } else if (type === "compact" || isFirst) {
      this.sized = true; // from a response on, the window of its model is known
      this.send({ type: "status" }).catch(() => {});
    }
  }

  // The journal is another one than before: read all of it again.
  startAnew() {
    this.screen = emptyScreen();
    this.queue = [];
    this.caughtUp = false;
    this.connection.after = "";
    this.connection.line.close();
  }

  /** Read the part that is before the oldest block, or all of it. */
  async readOlder(newest = OLDER) {
    while (this.screen.older && (!this.reading || newest === ALL)) {
      this.reading ??= this.readPart(newest).finally(() => { this.reading = null; });
      await this.reading;
      if (newest !== ALL) return;
    }
  }

  async readPart(newest) {
    const { older } = this.screen;
    const address = `${api.of(this.id, "events")}?before=${encodeURIComponent(older.id)}&newest=${newest}`;
    const documents = await api.get(address);
    if (this.closed || this.screen.older?.id !== older.id) return; // all of it came again
    const before = this.screen.done.length;
    this.screen = withOlder(this.screen, documents);
    this.on.older(this.screen, this.screen.done.length - before);
  }

  readAll() {
    return this.readOlder(ALL);
  }

  note(way, raw, doc = JSON.parse(raw)) {
    if (!this.on.frame) return;
    this.frames.push({ way, raw, type: doc.type, seq: doc.seq ?? 0, at: Date.now() });
    if (this.frames.length > FRAMES * 1.25) this.frames.splice(0, this.frames.length - FRAMES);
    this.on.frame();
  }

  send(order) {
    if (this.readOnly) return Promise.reject(new Error("this conversation is read only here"));
    const text = order.type === "user_message" ? order.typed ?? order.text : order.instead;
    if (!text) return this.connection.send(order);
    const key = crypto.randomUUID();
    return this.post({ key, text, at: Date.now(), images: Boolean(order.images), order: { ...order, client_key: key } });
  }

  /** Send a message, and keep it in sight until the server has it: also when the conversation is opened again. */
  async post(message) {
    this.keepUnsent([...this.unsent, message]);
    try {
      const answer = await this.connection.send(message.order, true);
      this.forget(message);
      return answer;
    } catch (error) {
      if (error.kind === LEFT && !message.images) return null; // it stays, and is sent again with its key
      this.forget(message);
      throw error;
    }
  }

  forget({ key }) {
    if (this.closed) this.storage.remove(key); // the conversation may be open anew
    else this.keepUnsent(this.unsent.filter((message) => message.key !== key));
  }

  keepUnsent(messages) {
    this.unsent = messages;
    this.storage.write(messages);
    this.on.unsent(messages);
  }

  takeBack(key) {
    this.connection.forget(key);
    this.forget({ key }); // also where no connection has it
  }

  /** Find out why the connection was refused, and try again, read the journal, or give up. */
  async whyLost() {
    try {
      const about = await api.get(api.of(this.id));
      this.why = "";
      if (about.held_by) {
        this.readJournal(about.held_by);
        return false;
      }
      return true;
    } catch (error) {
      this.why = error.status >= 500 ? error.message : "";
      if (error.status === 0 || error.status >= 500) return true;
      this.on.gone(error);
      return false;
    }
  }

  async readJournal(holder) {
    this.readOnly = true;
    this.on.held(holder);
    let after = "";
    while (this.readOnly) {
      try {
        const from = after ? `after=${encodeURIComponent(after)}&limit=${PAGE}` : `newest=${NEWEST}`;
        const address = `${api.of(this.id, "events")}?${from}`;
        const documents = await api.get(address);
        for (const doc of documents) {
          after = doc.id ?? after;
          this.heard(doc, JSON.stringify(doc));
        }
        this.on.state("reading", 0);
        if (documents.length >= PAGE) continue;
        this.caughtUp = true;
        this.schedule();
        if (!(await api.get(api.of(this.id))).held_by) return this.join(after);
      } catch {
        this.on.state("offline", POLL / 1000);
      }
      await new Promise((resolve) => { setTimeout(resolve, POLL); });
    }
  }

  /** The process that had it open has ended, or can be joined now. */
  join(after) {
    this.readOnly = isNode(this.id);
    this.connection.close();
    this.connect(after);
    for (const message of this.unsent.splice(0)) this.post(message).catch(() => {});
    this.on.joined();
  }

  close() {
    this.closed = true;
    this.readOnly = false;
    this.connection.finish();
  }
}
