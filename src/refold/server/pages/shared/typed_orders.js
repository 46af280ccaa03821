// Slash commands that are orders. On a node with people a page sends these itself: the others need
// the folder or the settings of a machine, which people of the node do not share. Pure.

/** The commands, in the order in which they are offered, with an argument for example; "": none is needed. */
export const TYPED_ORDERS = {
  mode: "plan", model: "openai/gpt-5.2", agent: "code", effort: "high", plan: "", compact: "", continue: "", teams: "on",
};

/** The orders of a command with these words behind it, or null if there are none. */
export function ordersOf(name, words) {
  switch (name) {
    case "mode": case "model": case "agent": case "effort": return words ? [{ type: `set_${name}`, [name]: words }] : null;
    case "plan": return [{ type: "set_mode", mode: "plan" }, ...(words ? [{ type: "user_message", text: words, when: "next" }] : [])];
    case "compact": return [words === "prune" ? { type: "compact", kind: "prune" } : { type: "compact", focus: words }];
    case "continue": return [{ type: "continue" }];
    case "teams": return ["on", "off"].includes(words) ? [{ type: "toggle_teams", on: words === "on" }] : null;
    default: return null;
  }
}
