"""The examples of docs/guides/library.md run as written, with a scripted model."""

import re
from pathlib import Path

import pytest

import refold
from refold.client.agent import Agent
from refold.testing.providers import ScriptedProvider

PAGE = Path(__file__).parents[2] / "docs/guides/library.md"
EXAMPLES = re.findall(
    r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL
)
SAID = (
    "answered Hi.",
    "17.\nanswered, 3 tokens",
    "paint answered",
    "Hi.",
    "Hi.",
    "(1, 'root', True)",
)


@pytest.mark.parametrize(("example", "expected"), list(zip(EXAMPLES, SAID, strict=True)))
def test_each_example_of_the_library_page_runs(
    example: str,
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def make_scripted(model: str, **options: object) -> Agent:
        assert model
        provider = ScriptedProvider("Hi.", "17.", "So.")
        return Agent(provider=provider, directory=tmp_path, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(refold, "Agent", make_scripted, raising=False)

    # Tools are found by their annotations, so the example has a module of its own.
    exec(compile(example, "library.md", "exec"), {"__name__": "example"})

    assert expected in capsys.readouterr().out
