"""The core of the full screen is a function of messages: it brings no runtime along."""

import subprocess
import sys

RUNTIMES = (
    "anyio",
    "asyncio",
    "prompt_toolkit",
    "textual",
    "refold.terminal",
    "refold.engine",
)


def test_update_and_view_import_neither_a_framework_nor_anyio() -> None:
    program = (
        "import sys, refold.tui.update, refold.tui.view;"
        f"print([name for name in {RUNTIMES!r} if name in sys.modules])"
    )

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"
