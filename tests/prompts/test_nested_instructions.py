"""Instructions of folders below the start directory: read when a file there is first used."""

import os
from pathlib import Path

import anyio
import msgspec
import pytest

from refold import Agent
from refold.client.questions import Question
from refold.client.result import Result
from refold.config.paths import paths
from refold.config.trusted_folders import TrustedFolders
from refold.engine.policies.reminders import nested_instructions
from refold.journal.events.kinds import (
    Compacted,
    Entry,
    Event,
    Imported,
    InstructionsFound,
    ModelAsked,
    Rewound,
)
from refold.journal.state.fold import fold
from refold.testing.providers import Line, ScriptedProvider

POISON = "POISON"


@pytest.fixture
def root(tmp_path: Path, home: Path) -> Path:
    """Return a trusted repository with two packages."""
    texts = {
        "AGENTS.md": "Top rules.\n",
        "pkg/AGENTS.md": "Package rules.\n",
        "pkg/a/CLAUDE.md": "Rules of a. @more.md\n",
        "pkg/a/GEMINI.md": "Not the first.\n",
        "pkg/a/more.md": "More of a.\n",
        "pkg/a/src/f.py": "x = 1\n",
        "pkg/b/AGENTS.md": "Rules of b.\n",
        "pkg/b/g.py": "y = 1\n",
        ".git/HEAD": "ref: refs/heads/main\n",
    }
    root = tmp_path / "repo"
    for name, text in texts.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    TrustedFolders(paths(os.environ).folders).trust_texts(root)
    return root


def call(tool: str, **arguments: object) -> tuple[str, str]:
    return tool, msgspec.json.encode(arguments).decode()


READ_A = call("read_file", path="pkg/a/src/f.py")
READ_B = call("read_file", path="pkg/b/g.py")


async def allow(question: Question) -> bool:
    return True


def requests(root: Path, *script: Line, **options: object) -> list[str]:
    """Return what the model gets of each request: the conversation without the system
    prompt.
    """
    provider = ScriptedProvider(*script)
    agent = Agent(directory=root, provider=provider, approve=allow, **options)  # type: ignore[arg-type]
    agent.run("Work.")
    return [msgspec.json.encode([*request.messages]).decode() for request in provider.heard]


def test_nested_instructions_are_sent_after_a_file_in_the_folder_is_read(
    root: Path,
) -> None:
    first, second, third = requests(root, [READ_A], [READ_A], "Done.")

    assert "rules" not in first.lower()
    assert second.index("Package rules.") < second.index("More of a.")
    assert second.index("More of a.") < second.index("Rules of a.")
    assert "Not the first." not in second
    assert "Top rules." not in second
    assert "Rules of b." not in second
    assert third.count("Rules of a.") == 1
    assert third.startswith(second[:-1])


def test_nested_instructions_are_sent_after_a_file_in_the_folder_is_written(
    root: Path,
) -> None:
    write = call("write_file", path="pkg/b/new.py", content="z = 1\n")

    _, second = requests(root, [write], "Done.")

    assert "Rules of b." in second


def test_nested_instructions_are_not_sent_again_after_a_turn_or_a_resume(
    root: Path,
) -> None:
    provider = ScriptedProvider([READ_A], "Done.", [READ_A], "Again.", [READ_B], "More.")
    agent = Agent(directory=root, provider=provider)

    async def main() -> list[Result]:
        async with agent.session() as session:
            results = [await session.run("One."), await session.run("Two.")]
            id_ = session.id
        async with agent.session(id_) as session:
            return [*results, await session.run("Three.")]

    results = anyio.run(main)

    assert [result.text for result in results] == ["Done.", "Again.", "More."]
    last = msgspec.json.encode([*provider.heard[-1].messages]).decode()
    assert last.count("Rules of a.") == last.count("Package rules.") == 1
    assert last.count("Rules of b.") == 1


def test_nested_instructions_changed_after_trust_are_left_out(
    root: Path,
) -> None:
    requests(root, "Done.")  # records the trust
    (root / "pkg/a/CLAUDE.md").write_text(POISON)
    (root / "pkg/b/AGENTS.md").unlink()
    (root / "pkg/b/CLAUDE.md").write_text(POISON)

    *_, last = requests(root, [READ_A], [READ_B], "Done.")

    assert POISON not in last
    assert "Rules of a." in last


def test_nested_instructions_written_by_a_command_are_left_out(
    root: Path,
) -> None:
    write = call(
        "bash", command="printf POISON >> pkg/b/AGENTS.md; printf POISON > pkg/a/AGENTS.md"
    )

    *_, last = requests(
        root, [write], [READ_A], [READ_B], "Done.", settings={"sandbox.profile": "off"}
    )

    assert (root / "pkg/a/AGENTS.md").read_text() == POISON
    assert last.count(POISON) == 2  # in the command
    assert "Rules of b." in last


def test_nested_instructions_of_an_untrusted_folder_are_not_read(
    root: Path,
) -> None:
    assert TrustedFolders(paths(os.environ).folders).distrust(root)

    _, second = requests(root, [READ_A], "Done.")

    assert "Rules of a." not in second


def test_nested_instructions_are_not_read_if_instructions_are_off(root: Path) -> None:
    _, second = requests(root, [READ_A], "Done.", settings={"instructions": False})

    assert "Rules of a." not in second


FOUND = InstructionsFound((("/d/pkg/AGENTS.md", "Be brief."),))
TOLD = ModelAsked(policies=("nested_instructions",))


@pytest.mark.parametrize(
    ("events", "is_due"),
    [
        ((FOUND,), True),
        ((FOUND, TOLD), False),
        ((FOUND, TOLD, Compacted("prune")), False),
        ((FOUND, TOLD, Compacted("full")), True),
        ((FOUND, TOLD, Compacted("trim")), True),
        ((FOUND, TOLD, Compacted("full"), TOLD), False),
        ((TOLD, FOUND, TOLD, Rewound(3)), True),
        ((FOUND, TOLD, TOLD, Rewound(3)), False),
        ((TOLD, FOUND, TOLD, Rewound(1)), False),
        ((FOUND, Imported("x")), False),
    ],
)
def test_nested_instructions_are_due_until_the_conversation_contains_them(
    events: tuple[Event, ...], is_due: bool
) -> None:
    view = fold(Entry(seq, event) for seq, event in enumerate(events, 1))

    note = nested_instructions(view)

    assert (note is not None and "Be brief." in note.text) == is_due


def test_trust_for_one_start_excludes_nested_instructions_added_later(root: Path) -> None:
    """Without a recorded version it is unknown whether a command wrote it."""
    from refold.app.system_prompt import SessionGround, SystemPromptBuilder
    from refold.config.settings import Settings

    places = paths(os.environ)
    assert TrustedFolders(places.folders).distrust(root)
    ground = SessionGround(roots=(str(root),), trust=True, now=lambda: 0.0)
    prompt = SystemPromptBuilder(Settings(), places, os.environ, ground)
    files = [str(root / "pkg/b/g.py")]

    before = anyio.run(prompt.instructions_below, files, ())

    assert before is not None
    assert before.files == ()
    assert "written since this start" in before.notices[0]
