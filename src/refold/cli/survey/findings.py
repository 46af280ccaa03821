"""What was found of a project, as a value. Who finds what is said beside; nothing is guessed."""

from msgspec import Struct

from refold.cli.survey.folder import DirectorySummary


class Command(Struct, frozen=True):
    """`what` it is for, as "test"; `words` can be typed as they stand."""

    what: str
    words: str


class Facts(Struct, frozen=True, kw_only=True):
    name: str
    about: str = ""  # what the project says of itself
    kinds: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    conventions: tuple[str, ...] = ()
    parts: tuple[DirectorySummary, ...] = ()
    read: tuple[str, ...] = ()  # files that say more
