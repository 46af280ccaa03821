"""The system text: who the agent is, and where it works. Pure, but for its files."""

from pathlib import Path

from msgspec import Raw, Struct


class Surroundings(Struct, frozen=True):
    """What is true of the place, told to the model. `today` is an ISO date."""

    directory: str
    today: str
    platform: str


SHAPE = """When you are done, your answer must be one JSON value that matches this JSON Schema, \
and nothing else: no words before or after it.
{schema}"""


def system(
    around: Surroundings, *, own: str = "", more: str = "", schema: Raw | None = None
) -> str:
    """The whole system text. `own` replaces ours, `more` is added at its end.

    `schema` is a JSON Schema that the final answer has to match.
    """
    text = own or Path(__file__).with_name("system.md").read_text(encoding="utf-8")
    where = (
        f"You work in: {around.directory}\n"
        f"Today: {around.today}\nPlatform: {around.platform}"
    )
    shape = SHAPE.format(schema=bytes(schema).decode()) if schema is not None else ""
    return "\n\n".join(part.strip() for part in (text, where, more, shape) if part.strip())
