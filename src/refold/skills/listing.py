"""The list of skills that a model is told with every request: short, whatever there is.

Which skills there are is `discovery`'s business; what is in one, `catalogue`'s.
"""

from collections.abc import Sequence

from refold.skills.skill import Skill

BEFORE = (
    "Skills are instructions for kinds of work. Before you do work of one of these kinds, "
    "read its skill with read_skill, and follow it."
)
BUDGET = 4_000  # characters
_SHORTEST = 24  # characters of a description that still say something
_MORE = "- and {} more: list_skills finds them."


def listed(skills: Sequence[Skill], budget: int = BUDGET) -> str:
    """Names and descriptions in at most `budget` characters; "" if there are none.

    What is too long is made shorter: first the longest descriptions, then all are left
    out, then the last names, which a line then counts.
    """
    told = [skill for skill in skills if skill.told]
    if not told or budget < len(BEFORE) + len(_MORE) + 10:
        return ""
    left = budget - len(BEFORE) - sum(len(skill.name) + 5 for skill in told)
    lengths = [len(skill.description) for skill in told]
    most = _share(lengths, left)
    if most >= min(_SHORTEST, max(lengths)):
        lines = [f"- {s.name}: {_cut(s.description, most)}" for s in told]
        return "\n".join((BEFORE, *lines))
    return "\n".join((BEFORE, *_names(told, budget - len(BEFORE) - 1)))


def _share(lengths: Sequence[int], room: int) -> int:
    """How long a text may be so that all fit, where the short ones leave room."""
    waiting, most = sorted(lengths), 0
    while waiting:
        most = room // len(waiting)
        if waiting[0] > most:
            return most
        room -= waiting.pop(0)
    return max(lengths)


def _names(told: Sequence[Skill], room: int) -> list[str]:
    lines = list[str]()
    for at, skill in enumerate(told):
        line = f"- {skill.name}"
        last = at == len(told) - 1
        reserve = 0 if last else len(_MORE) + 8
        if sum(len(each) + 1 for each in lines) + len(line) + reserve > room:
            return [*lines, _MORE.format(len(told) - at)]
        lines.append(line)
    return lines


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"
