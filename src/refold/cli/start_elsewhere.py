"""Finds the directory that represents a remote workspace (`--workspace`) or a container."""

import os
from argparse import Namespace
from pathlib import Path

from refold.client.elsewhere import resolve_address, stand_in_directory
from refold.config.folder_settings import load_folder_settings
from refold.config.paths import current_directory, paths
from refold.errors import BadInput
from refold.place.elsewhere.address import is_address


def directory_elsewhere(args: Namespace) -> Path:
    """Return the directory on this machine that represents the workspace of the flags.

    Raises `BadInput` for an invalid address or an unknown name.
    """
    if args.container or args.devcontainer or args.keep:
        from refold.cli.start_container import directory_of_container

        return directory_of_container(args)
    return stand_in_directory(address_given("--workspace", args.elsewhere))


def address_given(option: str, text: str) -> str:
    """Return the address `text`, or the address that the settings have for the name `text`.

    Raises `BadInput`, which names the flag `option`, for any other text.
    """
    named = {} if is_address(text) else _named_workspaces()
    if address := resolve_address(text, named):
        return address
    names = f", or one of {', '.join(named)}" if named else ""
    raise BadInput(
        f"{option} {text!r} is not an address: give ssh://host/dir{names}, or another "
        "one that `refold --help all` lists; to work on this machine, change the directory"
    )


def _named_workspaces() -> dict[str, str]:
    loaded = load_folder_settings(current_directory(), paths(os.environ), os.environ, {})
    return loaded.settings.workspaces
