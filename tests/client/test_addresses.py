"""Addresses of workspaces elsewhere: names in the settings, and who may give which."""

import os
from pathlib import Path

import pytest

from refold.client.elsewhere import (
    AddressRights,
    address_of_directory,
    find_directory_elsewhere,
    find_stand_in,
)
from refold.client.types import acting_as
from refold.config.load import load
from refold.config.project import parse_file
from refold.errors import BadInput

NAMED = {"build": "ssh://big/srv/app"}


def test_a_workspace_name_of_the_settings_stands_for_its_address(home: Path) -> None:
    by_name = find_directory_elsewhere("build", NAMED)
    by_address = find_directory_elsewhere("ssh://big/srv/app", {})

    assert by_name is not None
    assert by_name == by_address
    assert address_of_directory(os.path.realpath(by_name)) == "ssh://big/srv/app"
    assert find_directory_elsewhere("other", NAMED) is None


def test_an_invalid_workspace_address_in_the_settings_is_refused_with_its_key(
    home: Path,
) -> None:
    with pytest.raises(BadInput, match=r"^workspaces\.build: 'ftp://x' is not an address"):
        find_directory_elsewhere("build", {"build": "ftp://x"})


def test_workspace_addresses_are_read_from_the_settings_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[workspaces]\nbuild = "ssh://big/srv/app"\n')

    assert load(tmp_path / "config.toml", {}, {}).settings.workspaces == NAMED


def test_project_settings_cannot_name_workspaces() -> None:
    with pytest.raises(BadInput, match="workspaces"):
        parse_file(
            ".refold/config.toml", "project", b'[workspaces]\nbuild = "cmd:touch x"\n'
        )


@pytest.mark.parametrize(
    ("rights", "person", "allowed"),
    [
        (AddressRights(), "", False),
        (AddressRights(free=True, person="page"), "page", True),
        (AddressRights(free=True, person="page"), "", True),  # a program with the token
        (AddressRights(free=True, person="ada"), "bob", False),
        (AddressRights({"x": "cmd:sh # /x"}), "bob", True),
        (AddressRights({"x": "cmd:sh # /y"}), "page", False),
    ],
)
def test_a_workspace_address_is_accepted_only_from_a_person_with_that_right(
    rights: AddressRights, person: str, allowed: bool
) -> None:
    def is_allowed() -> bool:
        try:
            with acting_as(person):
                rights.check("cmd:sh # /x", tuple)
        except BadInput:
            return False
        return True

    assert is_allowed() is allowed


def test_a_workspace_address_of_an_earlier_session_is_accepted_only_with_the_right_recent(
    home: Path,
) -> None:
    directory = find_directory_elsewhere("cmd:sh # /x", {})
    assert directory is not None
    earlier = [os.path.realpath(directory)]

    AddressRights(recent=True).check("cmd:sh # /x", lambda: earlier)

    with pytest.raises(BadInput, match="does not take"):
        AddressRights(recent=True).check("cmd:sh # /other", lambda: earlier)
    with pytest.raises(BadInput, match="does not take"):
        AddressRights().check("cmd:sh # /x", lambda: earlier)


def test_a_worker_finds_the_workspace_elsewhere_that_another_machine_recorded(
    home: Path, tmp_path: Path
) -> None:
    here = find_directory_elsewhere("build", NAMED)
    assert here is not None
    there = f"/machine/of/another/places/{here.name}"
    (tmp_path / "places" / here.name).mkdir(parents=True)

    assert find_stand_in(there, NAMED) == here
    assert find_stand_in(str(here), {}) == here
    assert find_stand_in("/machine/of/another/work", NAMED) is None
    assert find_stand_in(str(tmp_path / "places" / here.name), NAMED) is None
    with pytest.raises(BadInput, match=rf"{there}.*does not know.*\[workspaces\]"):
        find_stand_in(there, {})
