"""Measures a page while a long answer streams, and while it shows stored conversations.

Needs playwright and chromium. `python -m bench.page [--letters N] [--blocks N] [--events N]
[--conversations N]` starts servers with a scripted model, opens both pages, and reads the clocks and
counters of the browser. The conversation of many blocks is folded and shown in the page, as after a
reload, and then typed into; that of many events and the list of many are read from journals.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench import page_sessions

WORDS = (
    "The quick brown fox jumps over the lazy dog while it reads **the log** of `build.py`. "
)
PARAGRAPH = 5  # sentences
PAUSE = 0.001  # seconds between two letters: faster than most models


def main() -> None:
    parser = ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("--letters", type=int, default=23_000, help="of an answer (23000)")
    parser.add_argument("--blocks", type=int, default=10_000, help="of a long conversation")
    parser.add_argument(
        "--events", type=int, default=22_000, help="of a stored conversation (22000)"
    )
    parser.add_argument("--conversations", type=int, default=2_000, help="of a list (2000)")
    args = parser.parse_args()
    print(
        f"load of this machine before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"
    )
    print(report(args.letters, args.blocks), flush=True)
    print(report_stored(args.events, args.conversations))


def report(letters: int, blocks: int) -> str:
    lines = [f"a page while {letters} letters stream (target: tasks < 1.5 s)", ""]
    for path in ("/", "/dev"):
        with tempfile.TemporaryDirectory() as directory:
            cost = measure_streaming(Path(directory), letters, path)
        parts = ", ".join(f"{name} {value:.2f} s" for name, value in cost.items())
        lines.append(f"{path:5} {parts}")
    lines += ["", f"{blocks} blocks (target: shown < 1 s, a key < 0.05 s)", ""]
    for path in ("/", "/dev"):
        with tempfile.TemporaryDirectory() as directory:
            number, cpu, key = measure_opening(Path(directory), blocks, path)
        lines.append(
            f"{path:5} shown after {number:.2f} s, {cpu:.2f} s of CPU; slowest key {key:.3f} s"
        )
    return "\n".join(lines)


def report_stored(events: int, conversations: int) -> str:
    """Return what a conversation of many events, and a list of many conversations, cost."""
    lines = ["", f"a session of {events} events (target: at rest ≤ 1 s, heap ≤ +60 MB, frames ≤ 17 ms)", ""]  # fmt: skip
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory) / "home"
        number = page_sessions.write_long(home, events, Path(directory))
        for path in ("/", "/dev"):
            with _page(
                Path(directory), {"text": "Hello."}, path, page_sessions.WATCH
            ) as page:
                lines.append(f"{path:5} {page_sessions.measure_long(page, path, number)}")
    lines += [
        "",
        f"a list of {conversations} conversations (target: first rows ≤ 0.3 s)",
        "",
    ]
    with tempfile.TemporaryDirectory() as directory:
        page_sessions.write_list(Path(directory) / "home", conversations, Path(directory))
        for path in ("/", "/dev"):
            with _page(
                Path(directory), {"text": "Hello."}, path, page_sessions.WATCH
            ) as page:
                first, again = (page_sessions.measure_list(page, path) for _ in range(2))
            lines.append(
                f"{path:5} first rows after {first:.2f} s, and again {again:.2f} s"
            )
    return "\n".join(lines)


def answer(letters: int) -> str:
    paragraph = f"{(WORDS * PARAGRAPH).strip()}\n\n"
    return (paragraph * (letters // len(paragraph) + 1))[:letters] + " done."


def measure_streaming(directory: Path, letters: int, path: str) -> dict[str, float]:
    """Return how many seconds the page computed, by purpose."""
    with _page(directory, {"text": answer(letters), "pace": PAUSE}, path) as page:
        page.fill("#message", "Go")
        session = _open_profiler(page)
        before = _counters(session)
        page.keyboard.press("Enter")
        page.locator(".block-words", has_text="done.").wait_for(timeout=240_000)
        after = _counters(session)
    return {name: after[name] - before[name] for name in before}


def measure_opening(directory: Path, blocks: int, path: str) -> tuple[float, float, float]:
    """Return the seconds until `blocks` blocks are shown, the CPU seconds for that, and the
    seconds of the slowest key.
    """
    skin = "user" if path == "/" else "developer"
    with _page(directory, {"text": "Hello."}, path) as page:
        session = _open_profiler(page)
        page.evaluate(f"window.frames_ = {json.dumps(_frames(blocks))}")
        loaded = _counters(session)["tasks"]
        value = page.evaluate(_SHOW.replace("SKIN", skin))
        cpu = _counters(session)["tasks"] - loaded
        page.focus("#message")
        slowest = page.evaluate(_TYPE)
    return value / 1000, cpu, slowest / 1000


def _frames(blocks: int) -> list[str]:
    result = {"type": "user_message", "sender": "person", "when": "now"}
    data: dict[str, Any] = {"type": "assistant_message", "thinking": "", "model": "a/m", "stop": "end",
             "partial": False, "usage": {}, "cost": 0.0}  # fmt: skip
    return [
        json.dumps(
            {**result, "seq": 100 + n, "text": f"message {n}"}
            if n % 2
            else {**data, "seq": 100 + n, "text": f"answer **{n}** with `code`"}
        )
        for n in range(blocks)
    ]


_SHOW = """async () => {
  const root = document.querySelector("script[type=module]").src.replace(/\\w+\\/page\\.js$/, "");
  const { emptyScreen, reduce } = await import(root + "shared/reducer.js");
  const { Transcript } = await import(root + "shared/transcript.js");
  const { renderBlock, renderComing, labelOf } = await import(root + "SKIN/blocks.js");
  const texts = (await import(root + "shared/texts.js")).SKIN;
  const begun = performance.now();
  let screen = emptyScreen();
  for (const frame of frames_) screen = reduce(screen, JSON.parse(frame));
  const skin = { texts, renderBlock, renderComing, labelOf };
  const context = { texts, folds: new Map(), directory: () => "", id: () => "", readOnly: () => true };
  window.big = new Transcript(document.querySelector(".scroller"), skin, context);
  big.show(screen);
  await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
  return performance.now() - begun;
}"""
# Each letter is inserted as by a key. Its time is that until the next frame is drawn.
_TYPE = """async () => {
  const box = document.querySelector("#message");
  let slowest = 0;
  for (const letter of "typing never lags") {
    const begun = performance.now();
    box.value += letter;
    box.dispatchEvent(new InputEvent("input", { bubbles: true, data: letter }));
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    slowest = Math.max(slowest, performance.now() - begun);
  }
  return slowest;
}"""


@contextmanager
def _page(directory: Path, reply: Any, path: str, watch: str = "") -> Generator[Any]:
    """Yield a page of a server whose model answers with `reply`.

    The script `watch` runs before the scripts of the page.
    """
    from playwright.sync_api import sync_playwright

    script = directory / "answers.jsonl"
    script.write_text(json.dumps(reply) + "\n", "utf-8")
    server = subprocess.Popen(
        [sys.executable, "-m", "refold", "serve", "--port", "0", "--script", str(script)],
        cwd=directory, env={**os.environ, "REFOLD_HOME": str(directory / "home")},
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert server.stdout is not None
        links = [re.findall(r"http\S+", server.stdout.readline())[0] for _ in range(2)]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            if watch:
                page.add_init_script(watch)
            page.goto(links[path == "/dev"])
            page.locator("#message").wait_for()
            yield page
            browser.close()
    finally:
        server.terminate()
        server.communicate()


def _open_profiler(page: Any) -> Any:
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})
    return session


def _counters(session: Any) -> dict[str, float]:
    metrics = session.send("Performance.getMetrics")["metrics"]
    data = {metric["name"]: metric["value"] for metric in metrics}
    names = {"tasks": "TaskDuration", "script": "ScriptDuration", "layout": "LayoutDuration",
             "style": "RecalcStyleDuration"}  # fmt: skip
    return {short: data[name] for short, name in names.items()}


if __name__ == "__main__":
    main()
