"""The system prompt of a session, and which parts wait for the user's trust."""

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw

from refold.app.system_prompt import PromptParts, SessionGround, SystemPromptBuilder
from refold.config.paths import Paths
from refold.config.settings import Settings
from refold.config.trusted_folders import TrustedFolders
from refold.errors import BadInput
from refold.journal.events.kinds import SystemPromptSet
from refold.prompts.presets import preset, small_system
from refold.prompts.system_text import RenderedPrompt, part_of

NEVER = SystemPromptSet()
NOON = 1_795_000_000.0


@pytest.fixture
def places(home: Path) -> Paths:
    own = home / "refold"
    own.mkdir()
    return Paths(own, own, own)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    path = Path(os.path.realpath(tmp_path)) / "project"
    (path / ".git").mkdir(parents=True)
    (path / ".git/HEAD").write_text("ref: refs/heads/main\n")
    return path


def make_builder(
    project: Path, places: Paths, settings: Settings | None = None, **options: Any
) -> SystemPromptBuilder:
    ground = SessionGround(**{"roots": (str(project),), "now": lambda: NOON, **options})
    home = str(places.config.parent)
    return SystemPromptBuilder(settings or Settings(), places, {"HOME": home}, ground)


def part(prompt: RenderedPrompt, name: str) -> str:
    return part_of(SystemPromptSet(prompt.system, parts=prompt.parts), name)


def prompt_event(prompt: RenderedPrompt) -> SystemPromptSet:
    return SystemPromptSet(prompt.system, parts=prompt.parts)


# Its contents. ------------------------------------------------------------------------


def test_system_prompt_parts_are_in_the_defined_order(project: Path, places: Paths) -> None:
    (project / "AGENTS.md").write_text("Use tabs.")
    material = PromptParts(
        memory="M.", skills="S.", agents="A.", more="More.", schema=Raw(b"{}")
    )

    prompt = make_builder(project, places, trust=True).text(material, NEVER)

    assert [name for name, _ in prompt.parts] == [
        "prompt", "environment", "instructions", "memory", "skills", "agents", "more",
        "schema",
    ]  # fmt: skip
    assert part(prompt, "prompt") == preset("coding").text
    assert part(prompt, "environment").splitlines()[0] == f"You work in: {project}"
    assert "Git: branch main when the session began" in part(prompt, "environment")
    assert "Use tabs." in part(prompt, "instructions")
    assert [part(prompt, n) for n in ("memory", "skills", "agents", "more")] == [
        "M.", "S.", "A.", "More.",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("material", "prompt"),
    [
        (PromptParts(), preset("coding").text),
        (PromptParts(preset="work"), preset("work").text),
        (PromptParts(preset="work", prompt="An agent's."), "An agent's."),
        (PromptParts(preset="work", prompt="An agent's.", own="Mine."), "Mine."),
        (PromptParts(small=True), small_system()),
        (PromptParts(small=True, preset="review"), preset("review").text),
    ],
)
def test_user_prompt_overrides_agent_prompt_and_agent_prompt_overrides_preset(
    material: PromptParts, prompt: str, project: Path, places: Paths
) -> None:
    assert part(make_builder(project, places).text(material, NEVER), "prompt") == prompt


def test_the_environment_of_a_small_model_omits_the_directory_path(
    project: Path, places: Paths
) -> None:
    small = part(
        make_builder(project, places).text(PromptParts(small=True), NEVER), "environment"
    )
    whole = part(make_builder(project, places).text(PromptParts(), NEVER), "environment")

    assert str(project) not in small
    assert "Paths are relative to the folder." in small
    assert f"You work in: {project}" in whole


def test_the_system_prompt_of_a_small_model_has_two_parts(
    project: Path, places: Paths
) -> None:
    prompt = make_builder(project, places).text(PromptParts(small=True), NEVER)

    assert [name for name, _ in prompt.parts] == ["prompt", "environment"]
    assert len(part(prompt, "environment").splitlines()) == 3


def test_each_part_is_limited_to_its_share_of_the_window(
    project: Path, places: Paths
) -> None:
    (project / "AGENTS.md").write_text("A rule of it.\n" * 2_000)
    long = "\n".join(["word " * 10] * 2_000)
    system_prompt = make_builder(project, places, trust=True)
    material = PromptParts(memory=long, skills=long, agents=long, window=8_000)

    prompt = system_prompt.text(material, NEVER)
    wide = system_prompt.text(PromptParts(window=100_000), NEVER)

    sizes = dict(prompt.parts)
    assert sizes["instructions"] <= 4_000
    assert sizes["memory"] <= 1_000
    assert sizes["skills"] <= 1_000
    assert sizes["agents"] <= 500
    assert "characters more in AGENTS.md …]" in prompt.system
    assert len(prompt.notices) == 1
    assert part(wide, "instructions").count("A rule of it.") == 2_000
    assert wide.notices == ()


# The cache of a provider. -------------------------------------------------------------


def test_the_system_prompt_does_not_change_within_a_session(
    project: Path, places: Paths
) -> None:
    (project / "AGENTS.md").write_text("Use tabs.")
    now = [NOON]
    system_prompt = make_builder(project, places, trust=True, now=lambda: now[0])
    first = system_prompt.text(PromptParts(), NEVER)

    (project / "AGENTS.md").write_text("Use spaces.")
    (project / ".git/HEAD").write_text("ref: refs/heads/side\n")
    now[0] += 24 * 3600
    second = system_prompt.text(PromptParts(), prompt_event(first))

    assert second == first


def test_a_session_resumed_the_same_day_has_the_same_environment_text(
    project: Path, places: Paths
) -> None:
    first = make_builder(project, places).text(PromptParts(), NEVER)
    (project / ".git/HEAD").write_text("ref: refs/heads/side\n")

    later = make_builder(project, places).text(PromptParts(), prompt_event(first))
    next_day = make_builder(project, places, now=lambda: NOON + 24 * 3600)
    another = next_day.text(PromptParts(), prompt_event(first))

    assert later == first
    assert "branch side" in another.system


def test_a_new_prompt_builder_reads_changed_instructions(
    project: Path, places: Paths
) -> None:
    (project / "AGENTS.md").write_text("Use tabs.")
    system_prompt = make_builder(project, places, trust=True)
    system_prompt.text(PromptParts(), NEVER)
    (project / "AGENTS.md").write_text("Use spaces.")

    anew = make_builder(project, places, trust=True)

    assert "Use tabs." in system_prompt.text(PromptParts(), NEVER).system
    assert "Use spaces." in anew.text(PromptParts(), NEVER).system


# Trust. -------------------------------------------------------------------------------


def test_instructions_are_read_only_after_the_folder_is_trusted(
    project: Path, places: Paths
) -> None:
    (project / "AGENTS.md").write_text("Use tabs.")
    before = make_builder(project, places)
    untold = part(before.text(PromptParts(), NEVER), "instructions")
    TrustedFolders(places.folders).trust_texts(project)
    after = make_builder(project, places)

    assert untold == ""
    assert before.notices() == (
        f"AGENTS.md in {project}: not trusted, so not read; run `refold trust add` to "
        "review and trust them, or start with --trust once",
    )
    assert "Use tabs." in after.text(PromptParts(), NEVER).system
    assert after.notices() == ()


def test_trust_covers_instructions_added_to_the_folder_later(
    project: Path, places: Paths
) -> None:
    TrustedFolders(places.folders).trust_texts(project)
    (project / "AGENTS.md").write_text("Use tabs.")

    assert "Use tabs." in make_builder(project, places).text(PromptParts(), NEVER).system


def test_trust_covers_folders_below_and_not_above(project: Path, places: Paths) -> None:
    inner = project / "inner"
    inner.mkdir()
    (project / "AGENTS.md").write_text("Outer.")
    (inner / "AGENTS.md").write_text("Inner.")

    TrustedFolders(places.folders).trust_texts(inner)
    half = make_builder(inner, places)
    text, texts = half.text(PromptParts(), NEVER).system, half.notices()
    TrustedFolders(places.folders).trust_texts(project)
    whole = make_builder(inner, places).text(PromptParts(), NEVER).system

    assert ("Outer." in text, "Inner." in text) == (False, True)
    assert texts[0].startswith("../AGENTS.md in ")
    assert whole.index("Outer.") < whole.index("Inner.")


def test_trust_does_not_cover_a_nested_repository(project: Path, places: Paths) -> None:
    inner = project / "inner"
    (inner / ".git").mkdir(parents=True)
    (inner / "AGENTS.md").write_text("Inner.")
    TrustedFolders(places.folders).trust_texts(project)

    system_prompt = make_builder(inner, places)

    assert (system_prompt.trust_root, system_prompt.root) == ("", str(inner))
    assert part(system_prompt.text(PromptParts(), NEVER), "instructions") == ""


def test_with_instructions_off_only_the_user_instructions_are_sent(
    project: Path, places: Paths
) -> None:
    (project / "AGENTS.md").write_text("Use tabs.")
    (places.config / "AGENTS.md").write_text("Call me Ada.")
    settings = Settings(instructions=False)

    prompt = make_builder(project, places, settings, trust=True).text(PromptParts(), NEVER)

    assert "Call me Ada." in prompt.system
    assert "Use tabs." not in prompt.system


def test_user_instructions_come_first_and_need_no_trust(
    project: Path, places: Paths
) -> None:
    (places.config / "AGENTS.md").write_text("Call me Ada. @~/notes/style.md")
    notes = places.config.parent / "notes"
    notes.mkdir()
    (notes / "style.md").write_text("Short sentences.")
    (project / "AGENTS.md").write_text("Use tabs.")

    untrusted = part(
        make_builder(project, places).text(PromptParts(), NEVER), "instructions"
    )
    trusted = make_builder(project, places, trust=True).text(PromptParts(), NEVER).system

    assert "Call me Ada." in untrusted
    assert "Short sentences." in untrusted
    assert "Use tabs." not in untrusted
    assert trusted.index("Call me Ada.") < trusted.index("Use tabs.")


def test_user_instructions_appear_once_if_the_project_is_the_config_folder(
    home: Path, places: Paths
) -> None:
    (places.config / "AGENTS.md").write_text("Call me Ada.")

    builder = make_builder(Path(os.path.realpath(places.config)), places, trust=True)

    assert builder.text(PromptParts(), NEVER).system.count("Call me Ada.") == 1


@pytest.mark.parametrize("name", [".env", "id_rsa", "deploy.pem"])
def test_key_files_cannot_be_imported_into_instructions(
    name: str, project: Path, places: Paths
) -> None:
    (project / name).write_text("SECRET=1")
    (project / "AGENTS.md").write_text(f"@./{name}")

    system_prompt = make_builder(project, places, trust=True)

    assert "SECRET" not in system_prompt.text(PromptParts(), NEVER).system
    assert system_prompt.notices() == (
        f"{name}, which AGENTS.md imports, is left out: it may contain secrets",
    )


@pytest.mark.parametrize(
    "name", [".npmrc", ".envrc", ".git/config", "prod.env", "x.tfstate", ".claude/.env"]
)
def test_files_that_often_contain_tokens_cannot_be_imported(
    name: str, project: Path, places: Paths
) -> None:
    (project / name).parent.mkdir(exist_ok=True)
    (project / name).write_text("token-7")
    (project / "AGENTS.md").write_text(f"See @{name}")

    builder = make_builder(project, places, trust=True)

    assert "token-7" not in builder.text(PromptParts(), NEVER).system
    assert builder.notices() == (
        f"{name}, which AGENTS.md imports, is left out: it may contain secrets",
    )


def test_instructions_denied_by_a_rule_are_left_out(project: Path, places: Paths) -> None:
    (project / "plans.md").write_text("Secret plans.")
    (project / "AGENTS.md").write_text("@plans.md")

    system_prompt = make_builder(
        project, places, trust=True, why_unreadable=lambda real: "a rule says no"
    )

    assert part(system_prompt.text(PromptParts(), NEVER), "instructions") == ""
    assert system_prompt.notices() == ("AGENTS.md is left out: a rule says no",)


# Presets of one's own. ----------------------------------------------------------------


def write_prompt(folder: Path, name: str, text: str) -> None:
    (folder / "prompts" / name).mkdir(parents=True, exist_ok=True)
    lines = f"---\nname: {name}\ndescription: Mine.\nversion: 1\n---\n{text}\n"
    (folder / "prompts" / name / "PROMPT.md").write_text(lines)


def test_presets_of_a_trusted_project_override_user_presets(
    project: Path, places: Paths
) -> None:
    write_prompt(places.config, "mine", "One's own.")
    write_prompt(project / ".refold", "mine", "The project's.")
    material = PromptParts(preset="mine")

    untrusted = make_builder(project, places).text(material, NEVER)
    trusted = make_builder(project, places, trust=True).text(material, NEVER)

    assert part(untrusted, "prompt") == "One's own."
    assert part(trusted, "prompt") == "The project's."


def test_a_preset_of_an_untrusted_folder_is_not_found(project: Path, places: Paths) -> None:
    write_prompt(project / ".refold", "mine", "The project's.")

    with pytest.raises(BadInput, match="there is no preset 'mine'"):
        make_builder(project, places).text(PromptParts(preset="mine"), NEVER)


def test_the_preset_of_the_settings_is_checked_at_the_start(
    project: Path, places: Paths
) -> None:
    write_prompt(project / ".refold", "mine", "The project's.")
    settings = Settings(preset="mine")

    make_builder(project, places, settings, trust=True).check()

    with pytest.raises(BadInput, match="there is no preset 'mine'"):
        make_builder(project, places, settings).check()


def test_a_project_preset_with_a_built_in_name_is_ignored_with_a_notice(
    project: Path, places: Paths
) -> None:
    write_prompt(project / ".refold", "coding", "Obey.")

    system_prompt = make_builder(project, places, trust=True)

    assert part(system_prompt.text(PromptParts(), NEVER), "prompt") == preset("coding").text
    assert system_prompt.notices() == (
        ".refold/prompts/coding/PROMPT.md is ignored: coding is a preset of refold; "
        "give yours another name",
    )
