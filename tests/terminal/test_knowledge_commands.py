"""Commands for skills, templates, notes, agents and presets."""

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from refold.app.project_memory import LearnResult, ProjectMemory
from refold.errors import BadInput
from refold.journal.events.kinds import Said
from refold.journal.events.setting_events import AgentChosen, ModeChanged
from refold.journal.journal_directory import JournalDirectory
from refold.memory.note_origins import NoteChange
from refold.prompts.presets import Preset
from refold.skills.catalogue import Catalogue
from refold.skills.directories import SkillScope
from refold.skills.slash_commands import Shortcuts
from tests.terminal.test_conversation import ScriptedTerminal

OpenScriptedTerminal = Callable[..., ScriptedTerminal]
TEMPLATES = """
## /fix <file> <what>
Fix {what} in {file}, and nothing else.

## /model <x>
Never {x}.
"""


@pytest.fixture
def scripted_terminal(tmp_path: Path) -> OpenScriptedTerminal:
    return lambda *lines, **more: ScriptedTerminal(tmp_path, *lines, **more)


@pytest.fixture
def app_knowledge(tmp_path: Path) -> dict[str, Any]:
    """Return what is known around a folder with a skill, two templates and no notes."""
    skill = tmp_path / ".refold" / "skills" / "paint" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: paint\ndescription: Paint it.\n---\nUse \x1b[31mred.\n")
    (tmp_path / ".refold" / "skills.md").write_text(TEMPLATES)
    here = str(tmp_path)
    around = SkillScope(directory=here, repository=here, home=here + "/no", config=here + "/no",
                    trusted=here)  # fmt: skip
    catalogue = Catalogue(around)
    data = Path(os.environ["REFOLD_HOME"])
    return {
        "skills": catalogue,
        "shortcuts": Shortcuts(catalogue, around, {"model", "skills"}),
        "remembering": ProjectMemory(data, tmp_path, JournalDirectory(data / "sessions")),
    }


def with_learn(
    known: dict[str, Any], learn: Callable[[], Awaitable[LearnResult]]
) -> dict[str, Any]:
    """Return the same, where notes are made so."""

    class Memory(ProjectMemory):
        async def learn(self, *about: object, **options: object) -> LearnResult:
            return await learn()

    there = known["remembering"]
    return {
        **known,
        "model": "one",
        "remembering": Memory(there.home.root.parent, there.directory, there.home),
    }


def list_messages(terminal: ScriptedTerminal) -> list[object]:
    return [event.text for event in terminal.events(Said) if isinstance(event, Said)]


def test_a_template_is_sent_with_its_slots_filled(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    terminal = scripted_terminal("Done.", "Again.")

    rows = terminal.tell(
        "/fix a.py the greeting", "/fix a.py", "the {file}", **app_knowledge
    )

    assert list_messages(terminal) == [
        "Fix the greeting in a.py, and nothing else.",
        "Fix the {file} in a.py, and nothing else.",
    ]
    assert "Again." in rows


def test_a_template_with_named_values_is_expanded_and_other_at_signs_stay_text(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    terminal = scripted_terminal("Done.", "Again.")

    terminal.tell("@fix what=it file=a.py", "@fix the rest", **app_knowledge)

    assert list_messages(terminal) == ["Fix it in a.py, and nothing else.", "@fix the rest"]


def test_a_template_with_a_missing_value_is_not_sent(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    terminal = scripted_terminal()

    rows = terminal.tell("/fix a.py", "", **app_knowledge)

    assert list_messages(terminal) == []
    assert "/fix needs what, and nothing was typed" in rows


def test_a_command_hides_a_skill_of_the_same_name_which_keeps_a_prefixed_name(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    terminal = scripted_terminal("No.")

    rows = terminal.tell("/model", "", "/skill:model y", "/fixx", **app_knowledge)

    assert any(row.startswith("1  script/one") for row in rows)
    assert list_messages(terminal) == ["Never y."]
    assert "There is no command /fixx. Did you mean /fix?" in rows


def test_skills_are_listed_shown_and_used(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    terminal = scripted_terminal("Red.")

    rows = terminal.tell(
        "/skills", "/skills paint", "/skills nope", "/paint it", **app_knowledge
    )

    paint = next(row for row in rows if row.startswith("  /paint [task]  "))
    model = next(row for row in rows if row.startswith("  /skill:model <x>  "))
    assert paint.index("Paint it.") == model.index("Never {x}.")
    assert "Use [31mred." in rows
    assert any(row.startswith("there is no skill 'nope'") for row in rows)
    (words,) = list_messages(terminal)
    assert str(words).startswith("Use the skill paint: it\n\n")


def test_memory_notes_are_saved_listed_and_forgotten(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    terminal = scripted_terminal()

    rows = terminal.tell(
        "#the tests run with make check", "/memory", "/memory forget 1", "/memory",
        "#", "/memory forget", **app_knowledge,
    )  # fmt: skip

    assert list_messages(terminal) == []
    assert "remembered under Project facts: the tests run with make check" in rows
    first_row = rows.index("Project facts")
    assert rows[first_row + 1] == "    1  the tests run with make check"
    assert "forgotten: the tests run with make check" in rows
    assert "There are no notes yet. A line that begins with # saves one." in rows
    assert "the note is empty: write #, then what to remember" in rows
    assert "type /memory, /memory forget NUMBER or TEXT, or /memory update" in rows


def test_several_lines_that_begin_with_a_hash_go_to_the_model(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    terminal = scripted_terminal("A title.")

    terminal.tell("# Title\nand text", **app_knowledge)

    assert list_messages(terminal) == ["# Title\nand text"]


def test_memory_update_command_generates_notes(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    results = iter((
        LearnResult("s", (NoteChange("+", "Decisions", "paint \x1bit red", 1.0),)),
        LearnResult("s", why="there is nothing new in it"),
    ))  # fmt: skip

    async def learn() -> LearnResult:
        return next(results)

    rows = scripted_terminal().tell(
        "/memory update", "/memory update", **with_learn(app_knowledge, learn)
    )

    assert "+ Decisions: paint \\x1bit red" in rows
    assert "No new notes: there is nothing new in it" in rows


def test_commands_report_that_skills_or_memory_are_off(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    rows = scripted_terminal().tell("/skills", "/memory", "#this", "/memory update")

    off = "memory is off: --no-memory was given, or memory = false is set"
    assert rows.count(off) == 3
    assert "skills are off: skills = false is set" in rows


def test_agents_are_listed_and_chosen(scripted_terminal: OpenScriptedTerminal) -> None:
    terminal = scripted_terminal()

    rows = terminal.tell("/agent", "", "/agents", "/agent REVIEW", "/agent reviews")

    assert any(row.startswith("1  main") for row in rows)
    marked = [row for row in rows if row.startswith("* ")]
    assert len(marked) == 1
    assert marked[0].startswith("* main")
    assert any(row.startswith("From the next turn: review. ") for row in rows)
    assert any("there is no agent 'reviews'. Did you mean 'review'?" in row for row in rows)
    (chosen,) = terminal.events(AgentChosen)
    assert isinstance(chosen, AgentChosen)
    assert chosen.agent == "review"


def test_choosing_the_plan_agent_switches_to_plan_mode(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal()

    rows = terminal.tell("/agent plan")

    assert not any("is not used" in row for row in rows)  # no preset was chosen
    assert terminal.events(ModeChanged) == [ModeChanged("plan")]
    assert any(row.startswith("From the next turn: plan. ") for row in rows)


def test_choosing_an_agent_reports_that_the_preset_is_not_used(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    rows = scripted_terminal().tell("/agent review", preset="work")

    assert "the preset 'work' is not used: the agent review has a prompt of its own" in rows


def test_presets_are_shown_chosen_and_made_the_default(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    terminal = scripted_terminal()

    there = (
        Preset("coding", "for code", "1", ""),
        Preset("mine", "my \x1bown", "1", "Mine it is."),
    )

    rows = terminal.tell(
        "/preset", "/preset mine", "/preset mine save", "/preset other", "/preset mine now",
        "/preset codign", "/preset",
        presets=there,
    )  # fmt: skip

    assert "* coding  for code" in rows
    assert "  mine    my \\x1bown" in rows
    assert "From the next turn: the preset mine." in rows
    assert "* mine    my \\x1bown" in rows
    assert terminal.events(AgentChosen) == [AgentChosen("main", preset="mine")]
    assert terminal.read_defaults == [("preset", "mine")]
    assert "there is no preset 'other'. Available: coding, mine" in rows
    none = "there is no preset 'codign'. Did you mean 'coding'? Available: coding, mine"
    assert none in rows
    assert "type /preset mine, or /preset mine save, not 'mine now'" in rows


def test_memory_update_without_a_small_model_is_refused(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    rows = scripted_terminal().tell("/memory update", **app_knowledge)

    assert "no model can be asked for notes: set models.small" in rows


def test_notes_are_generated_after_an_idle_time_at_the_prompt(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    learned: list[int] = []
    again = anyio.Event()

    async def learn() -> LearnResult:
        learned.append(1)
        again.set()
        return LearnResult("s")

    async def wait() -> str:
        await again.wait()
        return "/quit"

    scripted_terminal("Noted.").tell(
        "I like tea.", wait, learns=True, idle=0.01, **with_learn(app_knowledge, learn)
    )

    assert len(learned) >= 1


def test_notes_are_requested_once_per_idle_period(
    scripted_terminal: OpenScriptedTerminal, app_knowledge: dict[str, Any]
) -> None:
    """Otherwise an open terminal would pay for a request without notes every ten minutes."""
    learned: list[int] = []
    again = anyio.Event()

    async def learn() -> LearnResult:
        learned.append(1)
        again.set()
        raise BadInput("small gave no JSON for the notes")

    async def wait() -> str:
        await again.wait()
        await anyio.sleep(0.1)
        return "/quit"

    scripted_terminal("Noted.").tell(
        "I like tea.", wait, learns=True, idle=0.01, **with_learn(app_knowledge, learn)
    )

    assert learned == [1]


def test_no_notes_are_generated_while_idle_if_memory_is_off(
    scripted_terminal: OpenScriptedTerminal,
) -> None:
    async def wait() -> str:
        await anyio.sleep(0.05)
        return "/quit"

    assert "Hello." in scripted_terminal("Hello.").tell("Hi.", wait, idle=0.01)
