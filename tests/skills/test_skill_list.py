"""The list of skills for the model never exceeds its limit."""

import pytest

from refold.skills.catalogue import LIST_INTRODUCTION, skill_list
from refold.skills.discovery import Skill


def skills(*lengths: int) -> list[Skill]:
    return [Skill(f"skill-{n}", "d" * length, "/", "") for n, length in enumerate(lengths)]


def test_skill_list_has_complete_descriptions_if_they_fit() -> None:
    assert (
        skill_list(skills(5, 30))
        == f"{LIST_INTRODUCTION}\n- skill-0: ddddd\n- skill-1: {'d' * 30}"
    )


@pytest.mark.parametrize("budget", [0, 100, 200, 400, 1000, 4000])
@pytest.mark.parametrize("lengths", [(), (10,), (1024,) * 12, (3, 1024, 50), (20,) * 300])
def test_skill_list_never_exceeds_its_budget(lengths: tuple[int, ...], budget: int) -> None:
    assert len(skill_list(skills(*lengths), budget)) <= budget


def test_skill_list_cuts_the_longest_descriptions_first() -> None:
    lines = skill_list(skills(20, 900), len(LIST_INTRODUCTION) + 200).splitlines()

    assert lines[1] == f"- skill-0: {'d' * 20}"
    assert lines[2].endswith("dd…")


def test_skill_list_counts_the_skills_it_omits() -> None:
    lines = skill_list(skills(*(500,) * 40), len(LIST_INTRODUCTION) + 100).splitlines()

    assert lines[1:] == [
        "- skill-0",
        "- skill-1",
        "- skill-2",
        "- skill-3",
        "- skill-4",
        "- and 35 more: list_skills finds them.",
    ]


def test_skill_list_is_empty_without_skills_for_the_model() -> None:
    assert skill_list([]) == ""
    assert skill_list([Skill("x", "d", "/", "", shown=False)]) == ""
