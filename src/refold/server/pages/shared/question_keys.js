// The table of states and keys of a request that waits, as `views/question_keys.py` has it in
// Python: both are tested against one corpus. Typing never answers. What is typed is a draft; Enter,
// y and n answer only while nothing is typed and no key came for a while; a choice that widens
// rights is highlighted by an arrow or a digit first, and given by Enter, however fast it follows.

export const CALM_SECONDS = 0.7;
const STEPS = { up: -1, left: -1, down: 1, right: 1 };
const LEAVES = new Set(["esc", "ctrl+c", "ctrl+d"]);
const MAX_DIGIT = 9;

/** A menu: `choices` are {id, widens}; `free_text`: the answer may be text. */
export function newMenu(choices, { free_text = false } = {}) {
  return { choices, free_text, selected: 0, digit: "", writing: false };
}

const isDirect = (choice) => (choice.id === "y" || choice.id === "n") && !choice.widens;
const reset = (menu) => ({ ...menu, selected: 0, digit: "", writing: false });
const pressed = (action, menu, value = "") => ({ action, menu, value });

/** What a key with a name does, as `enter`. `typed`: the draft or the answer has text. */
export function pressKey(menu, key, { typed, calm }) {
  if (LEAVES.has(key)) return pressed("leave", reset(menu));
  if (typed) return pressed(key !== "enter" ? "edit" : menu.writing ? "answer" : "send", menu);
  const many = menu.choices.length;
  if (STEPS[key] && many) {
    return pressed("select", { ...reset(menu), selected: (menu.selected + STEPS[key] + many) % many });
  }
  if (key !== "enter") return pressed("edit", menu);
  if (!(calm || menu.digit) || !(many || menu.free_text)) return pressed("wait", menu);
  return pressed("answer", menu, many ? menu.choices[menu.selected].id : "");
}

/** What text does that is typed or pasted. `typed`: there is some already. */
export function typeText(menu, text, { typed, calm }) {
  if (typed) return pressed(menu.writing ? "write" : "draft", menu, text);
  if (calm && !menu.digit) {
    if (menu.choices.some((choice) => choice.id === text && isDirect(choice))) {
      return pressed("answer", menu, text);
    }
    const number = /^[1-9]$/.test(text) ? Number(text) : 0;
    if (number && number <= Math.min(menu.choices.length, MAX_DIGIT)) {
      return pressed("select", { ...reset(menu), selected: number - 1, digit: text });
    }
  }
  const writing = menu.free_text && (calm || menu.digit !== "");
  return pressed(writing ? "write" : "draft", { ...reset(menu), writing }, menu.digit + text);
}
