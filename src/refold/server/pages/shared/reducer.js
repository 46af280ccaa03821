// Folds the documents of a conversation into one value: what a screen shows. Pure: no DOM, no
// clock, no network. The same fold as `views/screen` has in Python; a test runs both over one
// corpus of sessions. How a block looks is decided by the pages, what a document says by
// `views/stream_json`.

const TAIL = 1000; // characters of what a running call prints
const MAIL = 200; // messages of a team that are kept
const ENDS = new Set(["model_start", "assistant_message", "interrupted", "turn_end", "imported"]);

/** Return the screen of a conversation without documents. */
export function emptyScreen() {
  return {
    seq: 0,
    id: "", // of the last document of an event: where to resume
    older: null, // {seq, id} of the event up to which everything is left out
    rewoundTo: Infinity, // the earliest event to which a rewind that is here went back
    done: emptyLog(), // blocks that do not change any more
    open: [], // calls that have not ended, messages that wait
    coming: [], // the response that is being written
    status: noStatus(),
    moved: [], // what subagents do now
    children: [],
    mail: [], // of the team, the newest last
    background: [], // commands, in the order of their start
    board: 0, // the event that changed the task board last
    instructions: null, // of the folder, changed since the user trusted them
    requests: [], // approvals and questions that wait for a person
    plan: null,
    todos: [],
    choices: { mode: "", model: "", agent: "", effort: "", teams: false, tracing: false, budget: {} },
    title: "",
    directory: "",
    address: "", // of a workspace elsewhere
    ports: [], // there, that began to listen after it connected
    added: [], // more directories in which it works
    turn: 0, // the event that began the running turn; 0: none runs
    turnAt: 0,
    outcome: "", // of the last turn that ended
    stopped: false,
    cutOff: false,
    problem: "", // why the turn that is open does not go on, such as a full disk
    heldBy: "",
    usage: noUsage(),
    cost: 0, // null: a price is not known
    context: { tokens: 0, window: 0 }, // of the next request; the window is 0 while it is unknown
    steps: 0,
  };
}

/** Return all blocks, in the order in which they are shown. */
export function blocksOf(screen) {
  return [...logItems(screen.done), ...screen.open];
}

/** Return what the user has to decide now: requests, and a plan once its turn has ended. */
export function waiting(screen) {
  const shown = !screen.turn && screen.outcome === "plan_ready";
  return {
    requests: screen.stopped ? [] : screen.requests, plan: shown ? screen.plan : null,
    instructions: screen.instructions,
  };
}

/** Return the screen after this document. `screen` itself is not changed. */
export function reduce(screen, doc) {
  const change = REDUCERS[doc.type];
  let next = screen;
  if (doc.seq) next = { ...next, seq: doc.seq, id: doc.id ?? next.id, problem: "" };
  if (next.coming.length && (ENDS.has(doc.type) || (doc.type === "error" && doc.seq))) {
    next = { ...next, coming: [] };
  }
  return change ? change(next, doc) : next;
}

/** Return the screen with the blocks of these older documents in front of its own. */
export function withOlder(screen, documents) {
  const part = documents.reduce(reduce, emptyScreen());
  const items = [...logItems(rewoundFrom(part.done, screen.rewoundTo)), ...logItems(screen.done)];
  return {
    ...screen, older: part.older, rewoundTo: Math.min(part.rewoundTo, screen.rewoundTo),
    done: { items, length: items.length },
  };
}

const REDUCERS = {
  user_message(screen, doc) {
    const heard = {
      kind: "heard", seq: doc.seq, at: doc.at ?? 0, text: doc.text,
      said: doc.typed || doc.text, sender: doc.sender, later: false, key: doc.client_key ?? "",
      images: (doc.image_blobs ?? []).map((blob, n) => ({ blob, name: doc.images?.[n] ?? "" })),
    };
    if (!screen.turn || doc.sender.startsWith("child-")) return plus(screen, heard);
    return { ...screen, open: [...screen.open, { ...heard, later: doc.when === "next" || screen.stopped }] };
  },
  delivered(screen, doc) {
    const taken = new Set(doc.messages);
    return close(screen, (b) => b.kind === "heard" && taken.has(b.seq), (b) => b);
  },
  message_withdrawn(screen, doc) {
    return { ...screen, open: screen.open.filter((b) => b.kind !== "heard" || b.seq !== doc.message) };
  },
  turn_start(screen, doc) {
    return {
      ...screen, turn: doc.seq, turnAt: doc.at ?? 0, stopped: false, cutOff: false, plan: null,
    };
  },
  model_start: (screen) => withStatus({ ...screen, cutOff: false }, "thinking"),
  assistant_message(screen, doc) {
    let next = close(screen, (b) => b.kind === "called" && !b.within, lost);
    if (doc.thinking.trim()) {
      next = plus(next, { kind: "thought", seq: doc.seq, at: doc.at ?? 0, text: doc.thinking });
    }
    if (doc.text.trim()) {
      next = plus(next, words(doc, doc.text, doc.partial || doc.stop === "length", doc.model));
    }
    next = { ...spend(next, doc), steps: next.steps + 1, context: contextAfter(next, doc) };
    return withStatus(next, ofCalls(next.open));
  },
  tool_call(screen, doc) {
    const called = {
      kind: "called", seq: doc.seq, at: doc.at ?? 0, id: doc.call_id, tool: doc.tool,
      args: doc.arguments, stage: "called", reason: "", answered: "", changes: [], began: 0,
      ended: 0, tail: "", text: "", whole: "", diffs: [], images: [], within: doc.within ?? "",
    };
    return { ...screen, open: [...screen.open, called] };
  },
  tool_approval_request(screen, doc) {
    return ofRequest(change(screen, doc.call_id, (b) => ({
      ...b, stage: "asked", reason: doc.reason, answered: "", changes: doc.changes ?? [],
    })), doc);
  },
  question(screen, doc) {
    return ofRequest(change(screen, doc.call_id, (b) => ({
      ...b, stage: "asked", reason: "", answered: "", changes: [],
    })), doc);
  },
  tool_approval_result(screen, doc) {
    const next = without(screen, doc.call_id);
    if (!next.open.some((b) => b.id === doc.call_id)) return next; // of a subagent's call
    const found = change(next, doc.call_id, (b) => judged(b, doc));
    return withStatus(found, ofCalls(found.open));
  },
  tool_start(screen, doc) {
    const next = change(without({ ...screen, cutOff: false }, doc.call_id), doc.call_id, (b) => ({
      ...b, stage: "running", began: doc.at ?? 0,
    }));
    return withStatus(next, ofCalls(next.open));
  },
  tool_result(screen, doc) {
    const inner = screen.open.filter((b) => b.within === doc.call_id).map((b) => b.id);
    let next = close(
      [doc.call_id, ...inner].reduce(without, screen),
      (b) => b.kind === "called" && (b.id === doc.call_id || b.within === doc.call_id),
      (b) => (b.id === doc.call_id ? ended(b, doc) : lost(b)),
    );
    if (doc.final?.trim()) next = plus(next, words(doc, doc.final, false, ""));
    return withStatus(next, ofCalls(next.open));
  },
  diff(screen, doc) {
    const diff = { path: doc.path, kind: doc.kind, text: doc.text };
    const at = lastIndex(screen.done, (b) => b.kind === "called" && b.id === doc.call_id);
    if (at < 0) return screen;
    const block = screen.done.items[at];
    const done = withItem(screen.done, at, { ...block, diffs: [...block.diffs, diff] });
    return { ...screen, done };
  },
  plan_ready: (screen, doc) => ({
    ...screen, plan: { seq: doc.plan, title: doc.title, text: doc.text },
  }),
  plan_approved: (screen, doc) => judgedPlan(screen, doc),
  plan_rejected: (screen, doc) => judgedPlan(screen, doc),
  error(screen, doc) {
    if (!doc.seq) return screen; // about an order: `session` hears of it
    if (doc.dropped) {
      const at = doc.at ?? 0;
      const dropped = { kind: "dropped", seq: doc.seq, at, text: doc.partial ?? "", reason: doc.reason };
      return withStatus(plus(screen, dropped), ofCalls(screen.open));
    }
    const next = doc.partial?.trim() ? plus(screen, words(doc, doc.partial, true, "")) : screen;
    return withStatus(next, ofCalls(next.open));
  },
  interrupted: (screen) => ({ ...screen, stopped: true }),
  rewound(screen, doc) {
    let next = close(screen, (b) => b.kind === "called", lost);
    next = close(next, (b) => b.kind === "heard" && b.seq >= doc.to, (b) => b);
    next = {
      ...next, done: rewoundFrom(next.done, doc.to), requests: next.requests.filter((r) => r.who),
      rewoundTo: Math.min(next.rewoundTo, doc.to),
    };
    return withStatus(news(next, doc), ofCalls(next.open));
  },
  turn_end(screen, doc) {
    const over = {
      kind: "turn_over", seq: doc.seq, at: doc.at ?? 0, outcome: doc.outcome, reason: doc.reason,
      seconds: screen.turnAt && doc.at ? Math.max(0, doc.at - screen.turnAt) : 0, usage: null,
      cost: null, files: [], warnings: [], steps: 0, model: "",
    };
    const next = {
      ...screen, turn: 0, stopped: false, cutOff: false, moved: [], status: noStatus(), outcome: doc.outcome,
    };
    return plus({ ...next, requests: next.requests.filter((r) => r.who) }, over);
  },
  result(screen, doc) {
    const at = lastIndex(screen.done, (b) => b.kind === "turn_over");
    if (at < 0) return screen;
    const { usage, cost, files, warnings, steps, model, duration_seconds: seconds } = doc;
    const over = { ...screen.done.items[at], usage, cost, files, warnings, steps, model, seconds };
    return { ...screen, done: withItem(screen.done, at, over) };
  },
  todo_update: (screen, doc) => ({ ...screen, todos: doc.todos }),
  compact: (screen, doc) => withStatus(news(screen, doc), ofCalls(screen.open)),
  side_call: (screen, doc) => withStatus(screen, `requesting a ${doc.purpose}`),
  usage(screen, doc) {
    const next = doc.usage ? spend(screen, doc) : screen;
    const told = doc.failed ? news(next, doc) : next;
    const beside = told.status.doing.startsWith("requesting a");
    return beside ? withStatus(told, ofCalls(told.open)) : told;
  },
  imported(screen, doc) {
    const next = close(ofAnother(screen), (b) => b.kind === "called", lost);
    return news({
      ...next, turn: 0, stopped: false, plan: null, requests: [], status: noStatus(),
    }, doc);
  },
  subagent_start(screen, doc) {
    const child = {
      name: doc.child, agent: doc.agent, task: doc.title || doc.task, call: doc.call_id, running: true,
      status: "", text: "", reason: "", seq: doc.seq, at: doc.at ?? 0, endedAt: 0,
      teammate: doc.teammate ?? "", idle: false, stopped: "",
    };
    return news({ ...screen, children: [...screen.children, child] }, doc);
  },
  subagent_end(screen, doc) {
    const children = screen.children.map((c) => (c.name !== doc.child ? c : {
      ...c, running: false, status: doc.status, text: doc.text, reason: doc.reason, cost: doc.cost,
      endedAt: doc.at ?? 0,
    }));
    const moved = screen.moved.filter((m) => !`${m.node}/`.startsWith(`${doc.child}/`));
    return news(spend({ ...screen, children, moved }, doc), doc);
  },
  subagent_stopped: (screen, doc) => ofChild(screen, doc.child, { stopped: doc.reason }),
  teammate_status: (screen, doc) => ofChild(screen, doc.child, { idle: doc.idle }),
  team_mail(screen, doc) {
    const { seq, sender, to, kind, text } = doc;
    const mail = [...screen.mail, { seq, at: doc.at ?? 0, sender, to, kind, text }].slice(-MAIL);
    const found = screen.children.find((c) => inTeam(c) && c.teammate === to);
    const next = ofChild({ ...screen, mail }, found?.name, { idle: false });
    return to === "lead" ? next : news(next, doc); // that one comes as a message
  },
  task_update(screen, doc) { // there may be a free task
    const children = screen.children.map((c) => (inTeam(c) ? { ...c, idle: false } : c));
    return { ...screen, children, board: doc.seq };
  },
  background_started(screen, doc) {
    const command = {
      name: doc.name, command: doc.command, directory: doc.directory, at: doc.at ?? 0, endedAt: 0,
      running: true, outcome: "", code: null, reason: "", text: "", whole: "",
    };
    return { ...screen, background: [...screen.background, command] };
  },
  background_ended(screen, doc) {
    const { outcome, code, reason, text, whole } = doc;
    const background = screen.background.map((c) => (c.name !== doc.name || !c.running ? c : {
      ...c, running: false, outcome, code, reason, text, whole, endedAt: doc.at ?? 0,
    }));
    return news({ ...screen, background }, doc);
  },
  forked: (screen, doc) => news(ofAnother(screen), doc),
  ports: (screen, doc) => ({ ...screen, ports: doc.ports }),
  child_moved(screen, doc) {
    return { ...screen, moved: [...screen.moved.filter((m) => m.node !== doc.node), doc] };
  },
  mode_changed(screen, doc) {
    const next = chosen(screen, { mode: doc.mode });
    const byTool = lastOf(screen.done)?.kind === "called" && lastOf(screen.done).endSeq === doc.seq;
    return byTool ? next : news(next, doc);
  },
  model_changed: (screen, doc) => news(chosen(screen, { model: doc.model }), doc),
  effort_changed: (screen, doc) => news(chosen(screen, { effort: doc.effort }), doc),
  agent_changed: (screen, doc) => news(chosen(screen, { agent: doc.agent }), doc),
  title_changed(screen, doc) {
    const next = { ...screen, title: doc.title };
    return doc.named ? news(next, doc) : next;
  },
  workdir_changed: (screen, doc) => ({ ...screen, directory: doc.directory || screen.directory, added: doc.added }),
  teams_changed: (screen, doc) => news(chosen(screen, { teams: doc.on }), doc),
  tracing_changed: (screen, doc) => news(chosen(screen, { tracing: doc.on }), doc),
  budget(screen, doc) {
    const { dollars, tokens, calls, seconds } = doc;
    return news(chosen(screen, { budget: { dollars, tokens, calls, seconds } }), doc);
  },
  text_delta: (screen, doc) => streamed(screen, doc, "words"),
  thinking_delta: (screen, doc) => streamed(screen, doc, "thought"),
  call_coming(screen, doc) {
    if (screen.stopped) return screen;
    const coming = [...screen.coming, { kind: "call", text: doc.name, chars: 0 }];
    return withStatus({ ...screen, coming }, `writing a call of ${doc.name}`);
  },
  tool_progress(screen, doc) {
    return change(screen, doc.call_id, (b) => {
      const fresh = after(doc, b.printed ?? 0);
      const printed = (b.printed ?? 0) + characters(fresh);
      return { ...b, tail: lastOfText(b.tail + fresh, TAIL), printed };
    });
  },
  retry(screen, doc) {
    const { status } = screen;
    return { ...screen, status: {
      doing: "waiting", reason: doc.reason, seconds: doc.seconds, tries: status.tries + 1,
      attempt: doc.attempt ?? 0, attempts: doc.attempts ?? 0,
    } };
  },
  history(screen, doc) { // blocks of what came before it belong to an older part
    const { title, todos } = doc;
    return {
      ...screen, older: { seq: doc.seq, id: doc.id }, rewoundTo: Infinity, done: emptyLog(), title, todos,
      plan: planOf(doc),
    };
  },
  status(screen, doc) {
    const { mode, model, agent, effort, teams, tracing, budget } = doc.choices;
    const sum = spend({ usage: noUsage(), cost: 0 }, doc);
    const { usage, cost } = spend(sum, { usage: doc.subagents_usage, cost: doc.subagents_cost });
    return {
      ...chosen(screen, { mode, model, agent, effort, teams, tracing, budget }), directory: doc.directory, address: doc.address ?? "",
      ports: doc.ports ?? [], added: doc.added ?? [], usage, cost, context: doc.context ?? screen.context,
      cutOff: Boolean(doc.cut_off),
      problem: doc.problem ?? "",
      heldBy: doc.held_by ?? "",
      instructions: doc.instructions ?? null,
    };
  },
  snapshot(screen, doc) {
    return REDUCERS.status({ ...screen, todos: doc.todos, plan: planOf(doc) }, doc.status);
  },
};
for (const type of [
  "answer_rejected", "files_changed_elsewhere", "file_uploaded", "message_edited", "files_restored", "steps",
  "notice",
]) REDUCERS[type] = (screen, doc) => news(screen, doc);

// The log: a list that grows. Several screens share it, and each knows how many of its items it has.

function emptyLog() {
  return { items: [], length: 0 };
}

/** Return the blocks of a log as a new list. */
export function logItems(log) {
  return log.items.length === log.length ? log.items.slice() : log.items.slice(0, log.length);
}

function appended(log, item) {
  const items = log.items.length === log.length ? log.items : log.items.slice(0, log.length);
  items.push(item);
  return { items, length: items.length };
}

function withItem(log, at, item) {
  const items = logItems(log);
  items[at] = item;
  return { items, length: items.length };
}

function lastIndex(log, fits) {
  for (let at = log.length - 1; at >= 0; at -= 1) if (fits(log.items[at])) return at;
  return -1;
}

/** Return the last finished block for which `fits` returns true. */
export const lastBlock = (screen, fits) => screen.done.items[lastIndex(screen.done, fits)];

const lastOf = (log) => log.items[log.length - 1];

function rewoundFrom(log, seq) {
  const items = logItems(log).map((b) => (b.seq >= seq ? { ...b, rewound: true } : b));
  return { items, length: items.length };
}

const plus = (screen, block) => ({ ...screen, done: appended(screen.done, block) });

function news(screen, doc) {
  return plus(screen, { kind: "news", seq: doc.seq, at: doc.at ?? 0, what: doc.type, doc });
}

// Subagents, and other work beside the conversation.

function ofChild(screen, name, changes) {
  if (!screen.children.some((c) => c.name === name)) return screen;
  return {
    ...screen, children: screen.children.map((c) => (c.name === name ? { ...c, ...changes } : c)),
  };
}

const inTeam = (child) => child.running && child.teammate && !child.stopped;

/** Return the screen after a fork or an import: work that runs in the other session does not run here. */
function ofAnother(screen) {
  const over = (each) => (each.running ? { ...each, running: false, foreign: true } : each);
  return {
    ...screen, children: screen.children.map(over), background: screen.background.map(over),
    requests: screen.requests.filter((r) => !r.who),
  };
}

// Calls.

function change(screen, callId, how) {
  if (!screen.open.some((b) => b.id === callId)) return screen;
  return { ...screen, open: screen.open.map((b) => (b.id === callId ? how(b) : b)) };
}

/** Move the open blocks for which `fits` returns true to the finished ones, changed by `how`. */
function close(screen, fits, how) {
  const over = screen.open.filter(fits);
  if (!over.length) return screen;
  const next = { ...screen, open: screen.open.filter((b) => !fits(b)) };
  return over.reduce((found, block) => plus(found, how(block)), next);
}

const lost = (block) => ({ ...block, stage: "unknown", tail: "" });

function ended(block, doc) {
  return {
    ...block, stage: doc.outcome, tail: "", ended: doc.at ?? 0, text: doc.text, whole: doc.whole,
    images: doc.image_blobs ?? [], endSeq: doc.seq,
  };
}

function judged(block, doc) {
  const yes = doc.verdict === "allow";
  if (block.stage === "asked" && !doc.rule) {
    const said = yes ? "yes" : doc.reason ? `no: ${doc.reason}` : "no";
    return { ...block, stage: "called", answered: said };
  }
  return { ...block, reason: yes ? "" : doc.reason, answered: "", rule: doc.rule };
}

function ofRequest(screen, doc) {
  const requests = [...screen.requests.filter((r) => r.call_id !== doc.call_id), doc];
  const next = { ...screen, requests };
  return doc.who ? next : withStatus(next, ofCalls(next.open));
}

function without(screen, callId) {
  if (!screen.requests.some((r) => r.call_id === callId)) return screen;
  return { ...screen, requests: screen.requests.filter((r) => r.call_id !== callId) };
}

function judgedPlan(screen, doc) {
  const plan = screen.plan?.seq === doc.plan ? null : screen.plan;
  return news({ ...screen, plan }, doc);
}

// The response that is being written, and the status.

const words = (doc, text, partial, model) => ({
  kind: "words", seq: doc.seq, at: doc.at ?? 0, text, model, partial,
});

function streamed(screen, doc, kind) {
  if (screen.stopped) return screen;
  const seen = screen.coming.reduce((sum, c) => sum + (c.kind === kind ? c.chars : 0), 0);
  const fresh = after(doc, seen);
  if (!fresh) return screen;
  const last = screen.coming.at(-1);
  const goesOn = last?.kind === kind;
  const rest = goesOn ? screen.coming.slice(0, -1) : screen.coming;
  const before = goesOn ? last : { text: "", chars: 0 };
  const now = { kind, text: before.text + fresh, chars: before.chars + characters(fresh) };
  const next = { ...screen, coming: [...rest, now] };
  const { doing } = screen.status;
  if (kind === "words") return doing && fresh.trim() ? withStatus(next, "") : next;
  if (doing !== "waiting") return next;
  return { ...next, status: { ...next.status, doing: "thinking", reason: "", seconds: 0, attempt: 0, attempts: 0 } };
}

/** Return the part of a piece after the `seen` first characters of the text, which may come again. */
function after(piece, seen) {
  const skip = piece.offset === undefined ? 0 : seen - piece.offset;
  return skip <= 0 ? piece.text : [...piece.text].slice(skip).join("");
}

// Offsets count characters, and the length of a string counts UTF-16 units.
function characters(text) {
  let count = text.length;
  for (let at = 0; at < text.length; at += 1) {
    const unit = text.charCodeAt(at);
    if (unit >= 0xd800 && unit <= 0xdbff) count -= 1;
  }
  return count;
}

function lastOfText(text, count) {
  return text.length <= count ? text : [...text.slice(-2 * count)].slice(-count).join("");
}

const planOf = ({ plan }) => plan && { seq: plan.id, title: plan.title, text: plan.text };

const noUsage = () => ({ input: 0, output: 0, cached: 0 });

const noStatus = () => ({ doing: "", reason: "", seconds: 0, tries: 0, attempt: 0, attempts: 0 });

function withStatus(screen, doing) {
  return screen.status.doing === doing ? screen : { ...screen, status: { ...noStatus(), doing } };
}

const ofCalls = (open) => (open.some((b) => b.stage === "running") ? "running" : "");

const chosen = (screen, choices) => ({ ...screen, choices: { ...screen.choices, ...choices } });

/** Return the context after a response: what was sent, and the response itself. */
function contextAfter({ context }, { usage }) {
  const { fresh = 0, cached = 0, cache_write: write = 0, output = 0 } = usage ?? {};
  return fresh + cached + write ? { ...context, tokens: fresh + cached + write + output } : context;
}

function spend(screen, doc) {
  const { fresh = 0, cached = 0, cache_write: write = 0, output = 0 } = doc.usage ?? {};
  const { usage } = screen;
  return {
    ...screen,
    usage: {
      input: usage.input + fresh + cached + write, output: usage.output + output,
      cached: usage.cached + cached,
    },
    cost: screen.cost === null || doc.cost === null || doc.cost === undefined
      ? null : screen.cost + doc.cost,
  };
}
