// Plays a recording of the terminal in each element with data-recording="NAME".
// It needs no network: recordings.js has the screens. It never starts by itself, and where the
// user wants little motion, playing shows only screens that stand for a second or longer.
(() => {
  "use strict";
  const SECONDS_THAT_STAND = 0.8;
  const calm = window.matchMedia("(prefers-reduced-motion: reduce)");

  function button(label, text) {
    const result = document.createElement("button");
    result.type = "button";
    result.textContent = text;
    result.setAttribute("aria-label", label);
    result.title = label;
    return result;
  }

  function player(element, recording) {
    const screens = recording.screens;
    const lasting = screens.map(
      (screen, n) => n + 1 === screens.length || screens[n + 1].at - screen.at >= SECONDS_THAT_STAND,
    );
    let shown = 0;
    let timer = 0;

    const view = document.createElement("pre");
    view.className = "recording-screen";
    view.tabIndex = 0;
    view.setAttribute("role", "group");
    view.setAttribute("aria-label", recording.title);
    const back = button("Previous step", "◀");
    const play = button("Play", "▶ Play");
    const on = button("Next step", "▶");
    const slider = document.createElement("input");
    slider.type = "range";
    slider.max = String(screens.length - 1);
    slider.setAttribute("aria-label", "Position");
    const bar = document.createElement("div");
    bar.className = "recording-bar";
    bar.append(back, play, on, slider);

    function show(number) {
      shown = Math.max(0, Math.min(screens.length - 1, number));
      view.replaceChildren();
      screens[shown].rows.forEach((row) => {
        row.forEach(([text, style]) => {
          const piece = document.createElement("span");
          piece.textContent = text;
          if (style) piece.className = style.split(" ").map((name) => `recording-${name}`).join(" ");
          view.append(piece);
        });
        view.append("\n");
      });
      slider.value = String(shown);
      slider.setAttribute("aria-valuetext", `${Math.round(screens[shown].at)} seconds`);
    }

    function step(direction) {
      let number = shown + direction;
      while (number > 0 && number < screens.length - 1 && !lasting[number]) number += direction;
      show(number);
    }

    function stop() {
      clearTimeout(timer);
      timer = 0;
      play.textContent = "▶ Play";
      play.setAttribute("aria-label", "Play");
    }

    function advance() {
      if (shown >= screens.length - 1) return stop();
      if (calm.matches) step(1);
      else show(shown + 1);
      schedule();
    }

    function schedule() {
      if (shown >= screens.length - 1) return stop();
      const pause = calm.matches ? 2 : screens[shown + 1].at - screens[shown].at;
      timer = setTimeout(advance, pause * 1000);
    }

    function toggle() {
      if (timer) return stop();
      if (shown >= screens.length - 1) show(0);
      play.textContent = "⏸ Pause";
      play.setAttribute("aria-label", "Pause");
      schedule();
    }

    function go(move) {
      stop();
      move();
    }

    play.addEventListener("click", toggle);
    back.addEventListener("click", () => go(() => step(-1)));
    on.addEventListener("click", () => go(() => step(1)));
    slider.addEventListener("input", () => go(() => show(Number(slider.value))));
    view.addEventListener("keydown", (event) => {
      const moves = {
        ArrowLeft: () => step(-1),
        ArrowRight: () => step(1),
        Home: () => show(0),
        End: () => show(screens.length - 1),
      };
      if (event.key === " ") toggle();
      else if (moves[event.key]) go(moves[event.key]);
      else return;
      event.preventDefault();
      event.stopPropagation();
    });
    show(0);
    element.replaceChildren(view, bar);
  }

  function start() {
    document.querySelectorAll("[data-recording]").forEach((element) => {
      const recording = (window.refoldRecordings || {})[element.dataset.recording];
      if (recording) player(element, recording);
    });
  }

  if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", start);
  else start();
})();
