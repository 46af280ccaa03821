"""The public names of `refold.testing`, and the example of its page."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import refold.testing
from refold.testing import ToolCase, ToolContract, temporary_place
from tests.tools.test_tool_contract import temperature

PAGE = (Path(__file__).parent.parent / "docs/guides/testing.md").read_text("utf-8")


@pytest.mark.parametrize("name", refold.testing.__all__)
def test_every_public_name_of_refold_testing_exists_and_is_on_its_page(name: str) -> None:
    assert getattr(refold.testing, name).__name__ in (name, "Reply")
    assert re.search(rf"`{name}`", PAGE)


def test_an_unknown_name_of_refold_testing_fails_with_the_existing_names() -> None:
    with pytest.raises(
        AttributeError,
        match=r"^refold\.testing has no 'Mock'; it has BlobsContract, BusContract, Clock",
    ):
        _ = refold.testing.Mock  # type: ignore[attr-defined]


class TestTheToolOfThePage(ToolContract):
    @pytest.fixture
    def case(self) -> Iterator[ToolCase]:
        with temporary_place() as place:
            yield ToolCase(temperature, {"city": "Oslo"}, place)
