"""`--max-budget-usd` works with a provider that reports no usage, or nonsense."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import anyio
import pytest

from refold.testing.providers import Reply
from refold.testing.wire_answers import answer
from refold.testing.wire_server import Answer, wire_server

PAGE = "word " * 2_000  # about 3,300 tokens, at a dollar for a thousand


def responding_with(usage: str) -> Answer:
    """Words and a call that changes with nothing, with `usage` in the place of the counts."""
    calls = (("think", '{"thought": "on"}'),)
    whole = answer("openai-chat", Reply(PAGE, calls=calls))
    assert isinstance(whole.body, bytes)
    body = re.sub(rb'"usage":\{.*\}(?=\}\n\n)', b'"usage":' + usage.encode(), whole.body)
    return Answer(body, headers=whole.headers)


@pytest.mark.slow
@pytest.mark.parametrize(
    "usage", ["null", '"many"', '{"prompt_tokens":-9000000,"completion_tokens":-9000000}']
)
def test_max_budget_usd_stops_a_task_when_the_provider_reports_no_usage(
    tmp_path: Path, usage: str
) -> None:
    async def main() -> tuple[int, subprocess.CompletedProcess[bytes]]:
        async with wire_server(lambda _: responding_with(usage)) as server:
            settings = {
                "providers.mine.wire": "openai-chat",
                "providers.mine.base_url": server.url,
                'prices."mine/m".input': 0.001,
                'prices."mine/m".output': 1_000.0,
            }
            home = Path(os.environ["REFOLD_HOME"])
            home.mkdir(exist_ok=True)
            rows = (f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
            (home / "config.toml").write_text("".join(rows))
            command_line = [sys.executable, "-m", "refold", "-p", "Go on.", "-m", "mine/m"]
            command_line += ["--max-budget-usd", "8", "--output-format", "json"]
            done = await anyio.run_process(command_line, cwd=tmp_path, check=False)
            return len(server.heard), done

    number, done = anyio.run(main)

    data = json.loads(done.stdout)
    assert (data["outcome"], data["usage"]["estimated"]) == ("budget", True)
    assert 1 < number < 5
    assert 8 <= data["cost"] < 16
    assert done.stderr == b""  # no figure is shown there
