"""What a page costs while a long answer streams: CPU seconds of the browser's page.

Needs playwright and chromium. `python -m bench.page [--letters N]` starts a server with a
scripted model, opens both pages, and reads the counters of the browser.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

WORDS = (
    "The quick brown fox jumps over the lazy dog while it reads **the log** of `build.py`. "
)
PARAGRAPH = 5  # sentences
PAUSE = 0.0005  # seconds between two letters: faster than a model


def main() -> None:
    parser = ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("--letters", type=int, default=23_000, help="of an answer (23000)")
    found = parser.parse_args()
    print(report(found.letters))


def report(letters: int) -> str:
    lines = [f"a page while {letters} letters stream", ""]
    for path in ("/", "/dev"):
        with tempfile.TemporaryDirectory() as directory:
            cost = streamed(Path(directory), letters, path)
        parts = ", ".join(f"{name} {value:.2f} s" for name, value in cost.items())
        lines.append(f"{path:5} {parts}")
    return "\n".join(lines)


def answer(letters: int) -> str:
    paragraph = f"{(WORDS * PARAGRAPH).strip()}\n\n"
    return (paragraph * (letters // len(paragraph) + 1))[:letters] + " done."


def streamed(directory: Path, letters: int, path: str) -> dict[str, float]:
    """Seconds that the page computed, by what for."""
    from playwright.sync_api import sync_playwright

    script = directory / "answers.jsonl"
    script.write_text(json.dumps({"text": answer(letters), "pause": PAUSE}) + "\n", "utf-8")
    environ = {**os.environ, "REFOLD_HOME": str(directory / "home")}
    words = [
        sys.executable,
        "-m",
        "refold",
        "serve",
        "--port",
        "0",
        "--script",
        str(script),
    ]
    server = subprocess.Popen(
        words, cwd=directory, env=environ, stdout=subprocess.PIPE, text=True
    )
    try:
        assert server.stdout is not None
        links = [re.findall(r"http\S+", server.stdout.readline())[0] for _ in range(2)]
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-gpu"]
            )
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            page.goto(links[path == "/dev"])
            page.locator("#message").wait_for()
            page.fill("#message", "Go")
            session: Any = page.context.new_cdp_session(page)
            session.send("Performance.enable", {"timeDomain": "threadTicks"})
            before = _counters(session)
            page.keyboard.press("Enter")
            page.locator(".block-words", has_text="done.").wait_for(timeout=240_000)
            after = _counters(session)
            browser.close()
    finally:
        server.terminate()
        server.communicate()
    return {name: after[name] - before[name] for name in before}


def _counters(session: Any) -> dict[str, float]:
    metrics = session.send("Performance.getMetrics")["metrics"]
    found = {each["name"]: each["value"] for each in metrics}
    names = {"tasks": "TaskDuration", "script": "ScriptDuration", "layout": "LayoutDuration",
             "style": "RecalcStyleDuration"}  # fmt: skip
    return {short: found[name] for short, name in names.items()}


if __name__ == "__main__":
    main()
