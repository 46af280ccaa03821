"""Where the model works, in a few lines. Pure.

They stand near the front of all that is sent, and what changes there costs the whole
cache. So an old text is told again where only git has moved on.
"""

from msgspec import Struct

from refold.place.names import escaped
from refold.prompts.repository import Git

_GIT = "Git: "
_MOST = 8  # directories that are named


class Surroundings(Struct, frozen=True, kw_only=True):
    """What is true of the place. `today` is an ISO date."""

    directory: str
    more: tuple[str, ...] = ()  # other directories of the workspace
    today: str
    platform: str
    shell: str = ""
    git: Git | None = None


def environment(around: Surroundings) -> str:
    lines = [f"You work in: {escaped(around.directory)}"]
    if around.more:
        named = [escaped(each) for each in around.more[:_MOST]]
        unnamed = len(around.more) - len(named)
        named += [f"and {unnamed} more"] if unnamed else []
        lines.append(f"Also yours to work in: {', '.join(named)}")
    lines += [f"Today: {around.today}", f"Platform: {around.platform}"]
    if around.shell:
        lines.append(f"Shell: {around.shell}")
    if around.git:
        lines.append(_GIT + _state(around.git))
    return "\n".join(lines)


def again(now: str, before: str) -> str:
    """`before`, where nothing but git differs; else `now`."""
    return before if before and _but_git(now) == _but_git(before) else now


def _state(git: Git) -> str:
    where = f"branch {git.branch}" if git.branch else "no branch checked out"
    if git.subject:
        subject = git.subject.replace('"', "'")  # it ends where it says so
        return f'{where}, last commit {git.commit} "{subject}" when the session began'
    return f"{where} when the session began"


def _but_git(text: str) -> list[str]:
    return [line for line in text.split("\n") if not line.startswith(_GIT)]
