"""The list of models: prices, windows, filtering by typing, and the effort."""

from refold.views.model_picker import ModelOffer, model_picker
from refold.views.picker import (
    Stepper,
    picker_rows,
    rows_with_numbers,
    turn_dial,
    with_query,
)
from refold.views.styled import plain_text

OFFERS = (
    ModelOffer("anthropic/claude-sonnet-5", 1_000_000, 2, 10, ("main",)),
    ModelOffer("openai/gpt-6", 400_000, 0.75, 4.5, ("recent",)),
    ModelOffer("ollama/\x1b[2Jqwen", 32_768, 0, 0),
    ModelOffer("proxy/unknown"),
)
EFFORTS = ("low", "medium", "high")
PICKER = model_picker(OFFERS, "openai/gpt-6", "medium", EFFORTS)


def rows(width: int) -> list[str]:
    return [" ".join(plain_text([row]).split()) for row in picker_rows(PICKER, width, 9)]


def test_models_are_listed_with_window_and_prices_and_the_current_one_is_selected() -> None:
    assert rows(100) == [
        "anthropic/claude-sonnet-5 main 1M · $2 in, $10 out",
        "› openai/gpt-6 now, recent 400k · $0.75 in, $4.5 out",
        "ollama/\\x1b[2Jqwen 33k · free",
        "proxy/unknown ? · price unknown",
        "effort: ← medium →",
    ]
    assert all(len(plain_text([row])) <= 100 for row in picker_rows(PICKER, 100, 9))


def test_a_narrow_screen_shows_model_names_without_window_and_prices() -> None:
    assert rows(40)[0] == "anthropic/claude-sonnet-5 main"


def test_typing_a_role_finds_its_model_and_arrow_keys_change_the_effort() -> None:
    query = with_query(PICKER, "main")

    assert [item.id for item in query.items] == ["anthropic/claude-sonnet-5"]
    assert turn_dial(PICKER, 1).dial == Stepper("effort", ("default", *EFFORTS), 3)


def test_the_numbered_list_of_models_has_the_same_rows() -> None:
    first = plain_text(rows_with_numbers(PICKER.choices[:1], 80))

    assert first.startswith("1  anthropic/claude-sonnet-5  main")
    assert first.rstrip().endswith("1M · $2 in, $10 out")
