"""Shows settings as lines: key, value, and the place where it is set.

`config` computes the values and hides secrets.
"""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from refold.views.escape import escape_to_one_line


class LayerValue(Struct, frozen=True):
    """The value of a setting in one layer, as TOML, and the place where it is set."""

    value: str
    where: str


class Setting(Struct, frozen=True):
    """A setting. `layer_values` are its values in all layers that set it.

    The last value wins; with `adds`, all values are combined instead.
    """

    key: str
    value: str
    layer_values: tuple[LayerValue, ...] = ()
    adds: bool = False

    @property
    def where(self) -> str:
        """The place where the value is set (several if it is combined), or "default"."""
        if self.adds and self.layer_values:
            return ", ".join(dict.fromkeys(layer.where for layer in self.layer_values))
        return self.layer_values[-1].where if self.layer_values else "default"


def setting_lines(settings: Iterable[Setting], *, whole: bool) -> Iterator[str]:
    """Yield a line for each setting.

    With `whole`, lines with the values in its layers follow: the values that were combined,
    or the values that a later layer replaced.
    """
    for setting in settings:
        yield f"{setting.key} = {_line(setting.value, setting.where)}"
        if not whole:
            continue
        if setting.adds:
            yield from (
                f"    of them {_line(s.value, s.where)}" for s in setting.layer_values
            )
        else:
            others = reversed(setting.layer_values[:-1])
            yield from (f"    instead of {_line(s.value, s.where)}" for s in others)


def _line(value: str, source: str) -> str:
    return f"{escape_to_one_line(value)}  # {escape_to_one_line(source)}"
