"""Finding an agent by name. Capitals do not matter; a name that is none is told what is near."""

from difflib import get_close_matches

from refold.agents.builtin import ALIASES, BUILTIN
from refold.agents.profile import Profile, Use
from refold.errors import BadInput


def find(name: str, use: Use = "both") -> Profile:
    """The agent of that name. Raises `BadInput` if there is none, or not for this `use`.

    `use`: is it to work for the person ("main") or for another agent ("child")?
    """
    folded = name.strip().casefold()
    make = BUILTIN.get(ALIASES.get(folded, folded))
    if make is None:
        raise BadInput(_unknown(name, folded, use))
    found = make()
    if not fits(found, use):
        does = "for other agents" if found.use == "child" else "for the person"
        raise BadInput(f"the agent {found.name} works only {does}: {_there_are(use)}")
    return found


def every(use: Use = "both") -> tuple[Profile, ...]:
    """All there are for this use, in the order they are listed."""
    return tuple(found for make in BUILTIN.values() if fits(found := make(), use))


def fits(profile: Profile, use: Use) -> bool:
    return "both" in (use, profile.use) or use == profile.use


def _unknown(name: str, folded: str, use: Use) -> str:
    near = get_close_matches(folded, [*BUILTIN, *ALIASES], n=1)
    guess = f" Did you mean {near[0]!r}?" if near else ""
    return f"there is no agent {name!r}.{guess} {_there_are(use).capitalize()}"


def _there_are(use: Use) -> str:
    return f"there are {', '.join(found.name for found in every(use))}"
