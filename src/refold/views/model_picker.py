"""A list to choose a model from; its dial sets the reasoning effort. Pure.

`app.models` finds the models, and `client.choices` sorts them.
"""

from collections.abc import Iterable, Sequence
from functools import partial

from msgspec import Struct

from refold.views.escape import escape_to_one_line
from refold.views.picker import Picker, PickerItem, Stepper, with_selection
from refold.views.styled import Line
from refold.views.wrap import cells, cut

DEFAULT_EFFORT = "default"  # the provider's own effort
_FIGURES_CELLS = 26  # for window and prices
_MIN_CELLS_FOR_FIGURES = 56  # figures are left out of narrower rows


class ModelOffer(Struct, frozen=True):
    """A model that the user can choose. Unknown numbers are 0 or None.

    `input` and `output` are prices in US dollars per million tokens.
    """

    name: str
    window: int = 0  # tokens
    input: float | None = None
    output: float | None = None
    notes: tuple[str, ...] = ()  # its role, its alias, recent use


def model_picker(
    offers: Iterable[ModelOffer], current: str, effort: str, efforts: Sequence[str]
) -> Picker:
    """Return the list of models, in which `current` is selected. The dial is at `effort`."""
    values = (DEFAULT_EFFORT, *efforts)
    dial = Stepper("effort", values, values.index(effort) if effort in values else 0)
    items = (
        PickerItem(
            offer.name, partial(_row, offer, offer.name == current),
            " ".join((offer.name, *offer.notes)),
        )
        for offer in offers
    )  # fmt: skip
    return with_selection(Picker("Which model?", tuple(items), dial=dial), current)


def _row(offer: ModelOffer, is_current: bool, width: int) -> Line:
    """Return the row of a model: its name, notes such as "now", its window and price."""
    figures = _figures(offer) if width >= _MIN_CELLS_FOR_FIGURES else ""
    all_notes = ("now", *offer.notes) if is_current else offer.notes
    notes = ", ".join(map(escape_to_one_line, all_notes))
    text_width = width - cells(figures)
    gap = "  "
    name = cut(escape_to_one_line(offer.name), text_width - len(gap))
    # A gap is also between the notes and the figures.
    notes = cut(notes, max(text_width - cells(name) - 2 * len(gap), 0))
    padding = " " * (text_width - cells(name) - len(gap) - cells(notes))
    return (
        ("plain", f"{name}{gap}"), ("accent", notes), ("dim", f"{padding}{figures}"),
    )  # fmt: skip


def _figures(offer: ModelOffer) -> str:
    """Return the size of the context window and the price of a model."""
    window = _short_count(offer.window) if offer.window else "?"
    if offer.input is None or offer.output is None:
        price = "price unknown"
    elif not offer.input and not offer.output:
        price = "free"
    else:
        price = f"${offer.input:g} in, ${offer.output:g} out"
    price_cells = _FIGURES_CELLS - len("  12345 · ")  # without the window
    return f"  {window:>5} · {price:<{price_cells}}"


def _short_count(tokens: int) -> str:
    return f"{tokens / 1e6:.3g}M" if tokens >= 999_500 else f"{tokens / 1000:.0f}k"
