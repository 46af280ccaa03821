// What the pages do with the keys of the corpus: for each step its action, value and highlight.
import { readFileSync } from "node:fs";

const { module, stories } = JSON.parse(readFileSync(0, "utf8"));
const { newMenu, pressKey, typeText } = await import(module);

console.log(JSON.stringify(stories.map((story) => {
  const choices = story.choices.map(([id, widens]) => ({ id, widens }));
  let menu = newMenu(choices, { free_text: story.free_text });
  return story.steps.map(({ press, typed, calm }) => {
    const done = press.key ? pressKey(menu, press.key, { typed, calm }) : typeText(menu, press.text, { typed, calm });
    menu = done.menu;
    return [done.action, done.value, menu.selected];
  });
})));
