"""What `--clone` takes as the address of a repository, and what it refuses."""

import pytest

from refold.errors import BadInput
from refold.place.git_source import GitSource, parse_source


@pytest.mark.parametrize(
    ("text", "url", "ref", "name"),
    [
        ("https://host/acme/app", "https://host/acme/app", "", "app"),
        ("https://host/acme/app.git@feature/x", "https://host/acme/app.git", "feature/x", "app"),
        ("https://me@host:8443/app@v1.2", "https://me@host:8443/app", "v1.2", "app"),
        ("ssh://git@host:2222/acme/app", "ssh://git@host:2222/acme/app", "", "app"),
        ("git@host:acme/app.git@main", "git@host:acme/app.git", "main", "app"),
        ("host:app", "host:app", "", "app"),
        ("/srv/git/the-app's", "/srv/git/the-app's", "", "the-app-s"),
        (f"file:///srv/app@{'a' * 40}", "file:///srv/app", "a" * 40, "app"),
    ],
)  # fmt: skip
def test_a_clone_address_is_split_into_url_ref_and_name(
    text: str, url: str, ref: str, name: str
) -> None:
    source = parse_source(text)

    assert source == GitSource(url, ref)
    assert source.name == name


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("ext::sh", "names a program"),
        ("fd::17", "names a program"),
        ("ext::sh -c id", "a space or a control character"),
        ("https://host/app\n", "a space or a control character"),
        ("--upload-pack=id", "for an option"),
        ("-oProxyCommand=id:app", "for an option"),
        ("ssh://-oProxyCommand=id/app", "not the name of a host"),
        ("ssh://git@-oProxyCommand=id/app", "not the name of a host"),
        ("git@-oProxyCommand=id:app", "not an address of a repository"),
        ("git@host:--upload-pack=id", "not the path of a repository"),
        ("https://host/app@--upload-pack", "not a branch, tag or commit"),
        ("https://host/app@a..b", "not a branch, tag or commit"),
        ("https:///app", "not the name of a host"),
        ("https://[::1/app", "names a program"),
        ("hg://host/app", "would run a program for 'hg'"),
        ("app", "not an address of a repository"),
        ("../app", "not an address of a repository"),
        ("https://host", "not the path of a repository"),
    ],
)  # fmt: skip
def test_a_hostile_or_ambiguous_clone_address_is_refused_with_the_reason(
    text: str, why: str
) -> None:
    with pytest.raises(BadInput, match=r"--clone .* is refused: ") as error:
        parse_source(text)

    assert why in str(error.value)
    assert "give https://host/path" in str(error.value)


def test_a_password_in_a_clone_address_is_refused_and_not_repeated() -> None:
    with pytest.raises(BadInput, match="credential helper") as error:
        parse_source("https://me:hunter2@host/app")

    assert "hunter2" not in str(error.value)
    assert "'https://host/app'" in str(error.value)
