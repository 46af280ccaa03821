// The time that something has been running for, which counts on while it is in the page. It stands
// still while the page does not know whether it runs (`condition.js`). And when a message was sent.

import { duration, h } from "./dom.js";

const SOON = 2; // seconds that are not worth a word
let timer = 0;

/** Return an element with the time since `at`, in seconds since 1970. */
export function runningTime(at) {
  const element = h("span", { class: "time running-time", data: { began: String(at) } });
  timer ||= setInterval(tick, 1000);
  show(element);
  return element;
}

/** Return an element with the time `at` (seconds since 1970), or its day; all of it on hovering. */
export function timeOf(at) {
  if (!at) return null;
  const when = new Date(at * 1000);
  return h("time", { datetime: when.toISOString(), title: when.toLocaleString() }, shortTime(when));
}

/** Return the time of today, or the day if it is another. */
export function shortTime(when) {
  const today = new Date().toDateString() === when.toDateString();
  return today ? when.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : when.toLocaleDateString([], { day: "numeric", month: "short" });
}

function tick() {
  const running = document.querySelectorAll(".running-time");
  for (const each of running) if (!each.closest("[data-still=yes]")) show(each);
  if (running.length) return;
  clearInterval(timer);
  timer = 0;
}

function show(element) {
  const seconds = Math.floor(Date.now() / 1000 - Number(element.dataset.began));
  element.textContent = seconds < SOON ? "" : duration(seconds).replace(/\.0 /, " ");
}
