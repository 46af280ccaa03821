"""Secrets that commands and code read leave this machine in no export, whatever its format."""

import subprocess
from pathlib import Path

import pytest

from tests.cli.running import LONG, call, command, script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

# Assembled here, so that no scanner takes this file for one that holds a key.
TOKENS = [f"ghp_{letter * 18}{'0123456789' * 2}" for letter in "abcdef"]
CODE = """
import base64
text = open("settings.ini").read()
a, b, c, d, e, f = text.split()
nested = {"one": [{"two": (b, {c})}]}
raw = d.encode()
large = [e] * 200_000
class Held:
    pass
held = Held()
held.key = f
print(text)
"""
FORMATS = ("md", "html", "text", "tar")


def run_refold(workspace: Path, *arguments: str) -> bytes:
    done = subprocess.run(
        command(*arguments), cwd=workspace, capture_output=True, timeout=LONG, check=True
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("way", ["as it is", "forked", "imported and exported again"])
def test_no_export_contains_secrets_of_python_variables(
    tmp_path: Path, home: Path, way: str
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "settings.ini").write_text("\n".join(TOKENS))
    begins = script(tmp_path, call("python", code=CODE), {"text": "Done."})
    run_refold(work, "-p", "Read the settings.", "--script", begins)
    saved = b"".join(p.read_bytes() for p in home.glob("**/blobs/*") if p.is_file())
    assert TOKENS[0].encode() in saved  # the text with which the session itself continues
    if way == "forked":
        ends = script(tmp_path, {"text": "On."})
        run_refold(work, "-p", "Go on.", "-c", "--fork", "--script", ends)
    elif way.startswith("imported"):
        run_refold(work, "sessions", "export", "-o", str(tmp_path / "first.tar"))
        run_refold(work, "sessions", "import", str(tmp_path / "first.tar"))

    exports = dict[str, bytes]()
    for form in FORMATS:
        file = tmp_path / f"out.{form}"
        run_refold(work, "sessions", "export", "--format", form, "-o", str(file))
        exports[form] = file.read_bytes()

    leaks = [
        (form, token)
        for form, whole in exports.items()
        for token in TOKENS
        if token.encode() in whole
    ]
    assert leaks == []
    assert all(b"settings.ini" in whole for whole in exports.values())


def test_a_resumed_session_has_the_secrets_in_its_python_variables(
    tmp_path: Path, home: Path
) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "settings.ini").write_text("\n".join(TOKENS))
    begins = script(tmp_path, call("python", code=CODE), {"text": "Done."})
    run_refold(work, "-p", "Read the settings.", "--script", begins)
    run_refold(work, "sessions", "export", "-o", str(tmp_path / "out.tar"))
    check = 'same = a + raw.decode() + held.key == "".join(open("settings.ini").read().split()[i] for i in (0, 3, 5)); print("same:", same)'
    resumes = script(tmp_path, call("python", code=check), {"text": "Done."})

    data = run_refold(
        work, "-p", "Go on.", "-c", "--script", resumes, "--output-format", "stream-json"
    )

    assert b"same: True" in data
