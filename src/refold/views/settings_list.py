"""Settings as lines: key, value and source.

`config` computes them and hides secrets.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from refold.views.escape import escape_to_one_line


class LayerValue(Struct, frozen=True):
    """The value in one layer, as TOML, and the place where it is set."""

    value: str
    where: str


class Setting(Struct, frozen=True):
    """`says` has the values of all layers; the last one wins, or `adds`: they add up."""

    key: str
    value: str
    says: tuple[LayerValue, ...] = ()
    adds: bool = False

    @property
    def where(self) -> str:
        if self.adds and self.says:
            return ", ".join(dict.fromkeys(say.where for say in self.says))
        return self.says[-1].where if self.says else "default"


def setting_lines(settings: Iterable[Setting], *, whole: bool) -> Iterator[str]:
    """A line for each setting; with `whole`, the values of other layers below it."""
    for setting in settings:
        yield f"{setting.key} = {_line(setting.value, setting.where)}"
        if not whole:
            continue
        if setting.adds:
            yield from (f"    of them {_line(s.value, s.where)}" for s in setting.says)
        else:
            others = reversed(setting.says[:-1])
            yield from (f"    instead of {_line(s.value, s.where)}" for s in others)


def _line(value: str, source: str) -> str:
    return f"{escape_to_one_line(value)}  # {escape_to_one_line(source)}"
