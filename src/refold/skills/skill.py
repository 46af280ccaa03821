"""What a skill is, and what was found of them."""

from msgspec import Struct

from refold.skills.places import Whose


class Skill(Struct, frozen=True):
    """A folder with a SKILL.md. `folder` is absolute, links followed.

    `told`: is the model told of it? Some are for a person to call, and not for a model.
    """

    name: str
    description: str
    folder: str
    where: str  # the place it was found in, for a person: "~/.claude/skills"
    whose: Whose = "yours"
    told: bool = True


class SkillScan(Struct, frozen=True):
    """`problems` are sentences for a person: what was not taken, and why."""

    skills: tuple[Skill, ...] = ()
    problems: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what is as somebody wanted it, and may be looked up
