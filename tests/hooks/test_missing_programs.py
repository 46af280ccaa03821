"""Hooks whose program is missing are named at the start, and no other."""

from pathlib import Path

import pytest

from refold.app.missing_hook_programs import missing_programs
from refold.hooks.configuration import Hook
from refold.values.modes import HookEvent


def has_program(program: str) -> bool:
    return program in ("cat", "python3", "bash")


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    script = tmp_path / "here is.sh"
    script.write_text("#!/bin/sh\n")
    script.chmod(0o700)
    (tmp_path / "plain.py").write_text("")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("no-such-program --check", "no-such-program"),
        ("no-such-program | cat", "no-such-program"),
        ('no-such-program "$HOME"', "no-such-program"),
        ("./gone.sh", "./gone.sh"),
        ("./plain.py", "./plain.py"),  # it cannot be run
        ('"$CLAUDE_PROJECT_DIR"/gone.sh', "{directory}/gone.sh"),
        ('"$CLAUDE_PROJECT_DIR/gone it.sh" x', "{directory}/gone it.sh"),
        ("${REFOLD_PROJECT_DIR}/gone.sh", "{directory}/gone.sh"),
        ("python3 gone.py", "gone.py"),
        ('bash "$CLAUDE_PROJECT_DIR/gone.sh"', "{directory}/gone.sh"),
        ("cat", ""),
        ("./plain.py-is-no-word$X", ""),
        ('"$CLAUDE_PROJECT_DIR/here is.sh"', ""),
        ("python3 plain.py", ""),
        ("python3 -c 'import gone.py'", ""),
        ("bash -e gone.sh", ""),  # the test does not know which options take a value
        ("if grep -q x; then exit 2; fi", ""),
        ("GUARD=1 gone", ""),
        ("$GUARD", ""),
        ("guard() { :; }; guard", ""),
        ("exit 2", ""),
        ("[ -e x ]", ""),
        ("", ""),
    ],
)
def test_only_the_missing_program_of_a_hook_is_reported(
    command: str, missing: str, directory: Path
) -> None:
    hook = Hook("PreToolUse", command=command, source="hooks.json")

    sentences = list(missing_programs((hook,), has_program, (), str(directory)))

    if not missing:
        assert sentences == []
        return
    (sentence,) = sentences
    assert f"program {missing.format(directory=directory)!r} of" in sentence


@pytest.mark.parametrize(
    ("on", "required", "advice"),
    [
        ("PreToolUse", True, ', so each call that it is run for is refused: install it, '
         'remove the hook, or give it "required": false'),
        ("UserPromptSubmit", True, ', so each message that it is run for is refused: install '
         'it, remove the hook, or give it "required": false'),
        ("PreToolUse", False, ": install it, or remove the hook"),
        ("Stop", True, ": install it, or remove the hook"),
    ],
)  # fmt: skip
def test_report_of_a_missing_hook_states_the_effect_and_how_to_disable_it(
    on: HookEvent, required: bool, advice: str
) -> None:
    hook = Hook(on, entry_point="nowhere", required=required, source="hooks.json")

    (sentence,) = missing_programs((hook,), has_program, (), "/")

    assert sentence == (
        f"hooks.json: the entry point 'nowhere' of the {on} hook `nowhere` is missing{advice}"
    )
