// Folds sessions with the reducer of the pages. Standard input: {"reducer": address of the
// module, "sessions": [{"documents": [...], "cuts": [n, ...], "older": [[...], ...]}]}. Prints, for
// each session, what the screen shows after the first n documents, and, if there are windows of
// older documents, with these.
import { readFileSync } from "node:fs";

const { reducer, sessions } = JSON.parse(readFileSync(0, "utf8"));
const { blocksOf, emptyScreen, reduce, waiting, withOlder } = await import(reducer);

function plain(block) {
  switch (block.kind) {
    case "heard":
      return ["heard", block.seq, block.text, block.said, block.sender, block.later, block.key,
        block.images.map((image) => [image.blob, image.name])];
    case "words":
      return ["words", block.seq, block.text, block.partial];
    case "dropped":
      return ["dropped", block.seq, block.text, block.reason];
    case "thought":
      return ["thought", block.seq, block.text];
    case "called":
      return ["called", block.seq, block.id, block.tool, block.args, block.stage, block.reason,
        block.answered, block.tail, block.text, block.whole, block.within,
        block.diffs.map((diff) => [diff.path, diff.kind, diff.text]),
        block.changes.map((diff) => [diff.path, diff.kind, diff.text]), block.images];
    case "news":
      return ["news", block.seq];
    default:
      return ["turn_over", block.seq, block.outcome, block.reason];
  }
}

function shown(screen) {
  const { requests, plan } = waiting(screen);
  return {
    blocks: blocksOf(screen).map(plain),
    coming: screen.coming.map((part) => [part.kind, part.text]),
    status: [screen.status.doing, screen.status.reason, screen.status.tries],
    moved: screen.moved.map((each) => each.node),
    ports: screen.ports,
    requests: requests.map((each) => each.call_id),
    plan: plan?.seq ?? 0,
    turn: screen.turn,
    todos: screen.todos,
    team: screen.children.map((c) => [c.name, c.teammate, c.running, c.idle, c.stopped]),
    switches: [screen.choices.teams, screen.choices.tracing],
    mail: screen.mail.map((m) => [m.sender, m.to, m.kind, m.text]),
    background: screen.background.map((c) => [c.name, c.command, c.running, c.outcome, c.text]),
  };
}

const found = sessions.map(({ documents, cuts, older = [] }) => {
  const every = [emptyScreen()];
  for (const document of documents) every.push(reduce(every.at(-1), document));
  // Read only now: what came later must not have changed an earlier value.
  const screens = cuts.map((cut) => shown(every[cut]));
  return older.length ? [...screens, shown(older.reduce(withOlder, every.at(-1)))] : screens;
});
process.stdout.write(JSON.stringify(found));
