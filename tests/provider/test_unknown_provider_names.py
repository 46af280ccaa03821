"""A provider name that does not exist."""

import pytest

from refold.provider.spec import unknown_provider_error

NAMES = [
    "anthropic",
    "openai",
    "openai-chat",
    "gemini",
    "google",
    *(f"p{n}" for n in range(50)),
]


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Antropic", "there is no provider 'Antropic'; did you mean anthropic?"),
        ("open-ai", "there is no provider 'open-ai'; did you mean openai?"),
        ("zzz", "there is no provider 'zzz'; refold models --all lists them"),
        ("", "there is no provider ''; refold models --all lists them"),
    ],
)
def test_unknown_provider_error_suggests_the_nearest_names_or_where_to_find_them(
    name: str, says: str
) -> None:
    assert str(unknown_provider_error(name, NAMES)) == says
