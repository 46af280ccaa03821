"""Which agents there are, and finding one by name. A value, made once for each start.

Capitals do not matter; a name that is none is told what is near. Those that come with
refold are always there, and first; what lies in folders is read by `files`.
"""

from collections.abc import Callable, Collection, Iterator

from msgspec import Struct

from refold.agents.builtin import ALIASES, BUILTIN
from refold.agents.code_limits import Settled, leashed
from refold.agents.directories import of_agents, unheeded
from refold.agents.discovery import found
from refold.agents.profile import Profile, Use
from refold.errors import BadInput
from refold.place.printable_names import escaped
from refold.skills.directories import SkillScope
from refold.tools.python_tool import NAME as PYTHON
from refold.tools.task import NAME as TASK

_MOST_TOLD = 5  # problems at the start; `refold agents` has them all


class Registry(Struct, frozen=True):
    """`profiles` are those of folders, `problems` what of them does not count, and why.

    With `settled`, each agent is found as it works under those settings.
    """

    profiles: tuple[Profile, ...] = ()
    problems: tuple[str, ...] = ()
    settled: Settled | None = None

    def find(self, name: str, use: Use = "both") -> Profile:
        """The agent of that name. Raises `BadInput` if there is none, or not for this use.

        `use`: is it to work for the person ("main") or for another agent ("child")?
        """
        folded = name.strip().casefold()
        wanted = ALIASES.get(folded, folded)
        make = BUILTIN.get(wanted)
        profile = make() if make else self._own(wanted)
        if profile is None:
            raise BadInput(self._unknown(name, folded, use))
        if not fits(profile, use):
            does = "for other agents" if profile.use == "child" else "for the person"
            raise BadInput(
                f"the agent {profile.name} works only {does}: {self._there_are(use)}"
            )
        return self._settled(profile)

    def every(self, use: Use = "both") -> tuple[Profile, ...]:
        """All there are for this use, in the order they are listed."""
        return tuple(self._settled(each) for each in self._all() if fits(each, use))

    def notices(self) -> tuple[str, ...]:
        """What a person has to be told at the start: what is meant as an agent and is none."""
        left = len(self.problems) - _MOST_TOLD
        more = (f"and {left} more sentences about agents: refold agents",)
        return (*self.problems[:_MOST_TOLD], *(more if left > 0 else ()))

    def _all(self) -> Iterator[Profile]:
        yield from (make() for make in BUILTIN.values())
        yield from self.profiles

    def _own(self, name: str) -> Profile | None:
        return next((each for each in self.profiles if each.name == name), None)

    def _settled(self, profile: Profile) -> Profile:
        return leashed(profile, self.settled) if self.settled else profile

    def _unknown(self, name: str, folded: str, use: Use) -> str:
        from difflib import get_close_matches

        there = [*BUILTIN, *ALIASES, *(each.name for each in self.profiles)]
        near = get_close_matches(folded, there, n=1)
        guess = f" Did you mean {near[0]!r}?" if near else ""
        # It may be there, and wrong.
        why = next((p for p in self.problems if f"/{folded}" in p.split(":")[0]), "")
        said = f" {why[:1].upper()}{why[1:]}." if why and folded else ""
        named = f"there is no agent {escaped(name)[:80]!r}."
        return f"{named}{said or guess} {self._there_are(use).capitalize()}"

    def _there_are(self, use: Use) -> str:
        return (
            f"there are {', '.join(each.name for each in self._all() if fits(each, use))}"
        )


def fits(profile: Profile, use: Use) -> bool:
    return "both" in (use, profile.use) or use == profile.use


def registry(
    around: SkillScope, known: Callable[[], Collection[str]], settled: Settled | None = None
) -> Registry:
    """All agents of this place. `known` gives the names of tools that there are."""
    read = found(of_agents(around), lambda: {*known(), TASK, PYTHON})
    return Registry(read.profiles, read.problems, settled)


def passed_over(around: SkillScope) -> str:
    """A sentence about the project's agents that do not count for want of trust, or ""."""
    from os.path import isdir

    there = [escaped(each.called) for each in unheeded(around) if isdir(each.path)]
    if not there:
        return ""
    return (
        f"{' and '.join(there)}: this folder is not trusted, so these agents do not count "
        "(refold trust add)"
    )
