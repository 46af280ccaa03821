"""Settings for a person: each with its value and where that comes from.

What they are and which one holds is `config`'s business; here they are lines of text,
nothing in them secret any more.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from refold.views.escape import on_one_line


class Say(Struct, frozen=True):
    """What one layer says: a value as it is written in TOML, and where it stands."""

    value: str
    where: str


class Setting(Struct, frozen=True):
    """`says` are those of all layers, the last winning, or adding to the others."""

    key: str
    value: str
    says: tuple[Say, ...] = ()
    adds: bool = False

    @property
    def where(self) -> str:
        if self.adds and self.says:
            return ", ".join(dict.fromkeys(say.where for say in self.says))
        return self.says[-1].where if self.says else "default"


def lines(settings: Iterable[Setting], *, whole: bool) -> Iterator[str]:
    """A line for each; with `whole`, below it what the other layers say."""
    for each in settings:
        yield f"{each.key} = {_line(each.value, each.where)}"
        if not whole:
            continue
        if each.adds:
            yield from (f"    of them {_line(s.value, s.where)}" for s in each.says)
        else:
            others = reversed(each.says[:-1])
            yield from (f"    instead of {_line(s.value, s.where)}" for s in others)


def _line(value: str, where: str) -> str:
    return f"{on_one_line(value)}  # {on_one_line(where)}"
