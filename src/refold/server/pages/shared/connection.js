// The WebSocket of one conversation: orders out, documents in. It connects again by itself and
// resumes after the last document that it had, so nothing is missed or told twice. An order
// has a key; one that was not answered when the line broke is sent again, and done once.

export const NEWEST = 400; // events of a conversation that are there when it is opened
const FIRST = 300; // milliseconds before the first new try
const LONGEST = 15_000;
const ORDER_PATIENCE = 60_000;
export const LEFT = "Left"; // the kind of the error of an order whose conversation is open no more

export class Connection {
  /**
   * `on` has document(doc, size), state(name, seconds), lost(): the server could not be
   * reached, or said no; return false to give up. `socket` makes a WebSocket, for tests;
   * it begins behind the document `after`, or, if that is "", with the newest events.
   */
  constructor(path, on, socket = (address) => new WebSocket(address), after = "") {
    this.path = path;
    this.on = on;
    this.socket = socket;
    this.after = after;
    this.tries = 0;
    this.orders = new Map();
    this.closed = false;
    this.again = () => this.retryNow();
    this.leave = () => this.line?.close(); // a lost network is silent; one on this machine connects again
    addEventListener("online", this.again);
    addEventListener("offline", this.leave);
    document.addEventListener("visibilitychange", this.again);
    this.connect();
  }

  connect() {
    if (this.closed) return;
    this.on.state("connecting");
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const from = this.after ? `after=${encodeURIComponent(this.after)}` : `newest=${NEWEST}`;
    const line = this.socket(`${scheme}//${location.host}${this.path}?${from}`);
    this.line = line;
    let opened = false;
    line.onopen = () => {
      opened = true;
      this.tries = 0;
      this.on.state("online");
      for (const key of this.orders.keys()) this.transmit(key);
    };
    line.onmessage = ({ data }) => this.heard(data);
    line.onclose = ({ code }) => {
      if (line === this.line) this.lost(opened, code);
    };
  }

  heard(data) {
    const doc = JSON.parse(data);
    if (doc.id) this.after = doc.id;
    const order = this.orders.get(doc.client_key);
    if (order && (doc.type === "order_taken" || doc.type === "error")) {
      this.orders.delete(doc.client_key);
      clearTimeout(order.timer);
      if (doc.type === "error") order.reject(Object.assign(new Error(doc.reason), { kind: doc.kind }));
      else order.resolve(doc);
      if (this.finishing) this.finish();
    }
    this.on.document(doc, data);
  }

  /**
   * Send an order. The promise is kept when the server has taken it. One that `waits` for a
   * connection waits as long as there is none.
   */
  send(order, waits = false) {
    const key = order.client_key ?? crypto.randomUUID();
    const frame = JSON.stringify({ ...order, client_key: key });
    return new Promise((resolve, reject) => {
      this.orders.set(key, { frame, resolve, reject, waits, timer: 0 });
      if (this.line?.readyState === WebSocket.OPEN) this.transmit(key);
      else if (!waits) this.expire(key);
      this.on.sent?.(frame);
    });
  }

  transmit(key) {
    this.line.send(this.orders.get(key).frame);
    this.expire(key);
  }

  expire(key) {
    const order = this.orders.get(key);
    clearTimeout(order.timer);
    order.timer = setTimeout(() => {
      this.orders.delete(key);
      order.reject(new Error("the server did not answer"));
      if (this.finishing) this.finish();
    }, ORDER_PATIENCE);
  }

  /** Forget an order that was not taken. */
  forget(key) {
    const order = this.orders.get(key);
    this.orders.delete(key);
    clearTimeout(order?.timer);
    order?.resolve(null);
  }

  async lost(opened, code) {
    if (this.closed) return;
    if (this.finishing) return this.close();
    this.on.state("offline", 0);
    for (const order of this.orders.values()) if (order.waits) clearTimeout(order.timer);
    if (!opened && !(await this.on.lost())) return this.close();
    if (this.closed || this.waiting) return undefined;
    // 1013: we read too slowly. 1012: the server begins anew.
    const base = Math.min(LONGEST, FIRST * 2 ** this.tries);
    const pause = code === 1013 ? FIRST : base * (0.5 + Math.random() / 2);
    this.tries += 1;
    this.on.state("offline", pause / 1000);
    this.waiting = setTimeout(() => {
      this.waiting = 0;
      this.connect();
    }, pause);
    return undefined;
  }

  retryNow() {
    if (!this.waiting || document.visibilityState === "hidden") return;
    clearTimeout(this.waiting);
    this.waiting = 0;
    this.connect();
  }

  /** Close it once the server has answered the orders that are under way; without a line, at once. */
  finish() {
    this.finishing = true;
    const there = [WebSocket.CONNECTING, WebSocket.OPEN].includes(this.line?.readyState);
    if (!there || !this.orders.size) this.close();
  }

  close() {
    this.closed = true;
    clearTimeout(this.waiting);
    removeEventListener("online", this.again);
    removeEventListener("offline", this.leave);
    document.removeEventListener("visibilitychange", this.again);
    for (const { reject, timer } of this.orders.values()) {
      clearTimeout(timer);
      reject(Object.assign(new Error("the conversation was left"), { kind: LEFT }));
    }
    this.orders.clear();
    this.line?.close();
  }
}
