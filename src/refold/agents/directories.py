"""Where agents of one's own may lie, in the order in which they win.

Names only; nothing here looks at the disk. Whose folders count is as with skills: those
of a project only where it is trusted.
"""

import os

from refold.skills.directories import SkillFolder, SkillScope, counting, in_project, own

_IN_A_PROJECT = (".refold/agents", ".claude/agents")
_AT_HOME = ".claude/agents"


def of_agents(around: SkillScope) -> tuple[SkillFolder, ...]:
    """Every folder of agents that counts. The first that has a name wins."""
    return (
        *counting(in_project(around, _IN_A_PROJECT), around),
        own(around, "agents"),
        SkillFolder(os.path.join(around.home, _AT_HOME), f"~/{_AT_HOME}", "yours"),
    )


def unheeded(around: SkillScope) -> tuple[SkillFolder, ...]:
    """Those of the project that do not count, because nobody said that it is trusted."""
    every = in_project(around, _IN_A_PROJECT)
    counts = set(counting(every, around))
    return tuple(each for each in every if each not in counts)
