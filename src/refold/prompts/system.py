"""The system text: who the agent is, and where it works. Pure, but for its files."""

from pathlib import Path

from msgspec import Struct


class Surroundings(Struct, frozen=True):
    """What is true of the place, told to the model. `today` is an ISO date."""

    directory: str
    today: str
    platform: str


def system(around: Surroundings, *, own: str = "", more: str = "") -> str:
    """The whole system text. `own` replaces ours, `more` is added at its end."""
    text = own or Path(__file__).with_name("system.md").read_text(encoding="utf-8")
    where = (
        f"You work in: {around.directory}\n"
        f"Today: {around.today}\nPlatform: {around.platform}"
    )
    return "\n\n".join(part.strip() for part in (text, where, more) if part.strip())
