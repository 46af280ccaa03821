"""`--container IMAGE` and `--devcontainer`: prepares the image of a container for a session.

Commands of the project that build the image are run only with `--trust`, or after a question
that shows them. The session starts the container (`place.containers.session_container`).
"""

import os
from argparse import Namespace
from functools import partial
from pathlib import Path

from refold.cli.output import is_interactive, read_yes
from refold.client.elsewhere import stand_in_directory
from refold.config.paths import current_directory, paths
from refold.errors import BadInput
from refold.headless.streams import print_error, print_lines
from refold.place.containers.container_program import find_container_program
from refold.place.containers.container_record import ContainerRecords
from refold.place.containers.prepare_image import prepare_image
from refold.place.containers.session_container import kept_out_of, plan_of_address
from refold.place.elsewhere.address import parse_address


def directory_of_container(args: Namespace) -> Path:
    """Return the directory on this machine that represents the container of the flags.

    Raises `BadInput` if the image cannot be prepared.
    """
    text = _address(args)
    address = parse_address(text)
    data = paths(os.environ).data
    plan = plan_of_address(address, kept_out_of(data, os.environ))
    program = find_container_program(os.environ)
    records = ContainerRecords(data / "containers")

    prepare_image(plan, program, records, partial(_ask, trusts=args.trust), print_error)
    if args.keep:
        records.keep(plan.name, kept=True)
    return stand_in_directory(text)


def _address(args: Namespace) -> str:
    """Return the address of the container that the flags name, as a session stores it.

    Raises `BadInput` if the flags name more than one place, or no container.
    """
    options = [
        flag
        for flag, value in (
            ("--workspace", args.elsewhere),
            ("--container", args.container),
            ("--devcontainer", args.devcontainer),
        )
        if value
    ]
    if len(options) > 1:
        raise BadInput(f"{' and '.join(options)} are different places: give one of them")
    if "--workspace" in options or not options:  # --keep without a container
        raise BadInput("--keep is for a container: add --container IMAGE or --devcontainer")
    project = os.path.realpath(current_directory())
    if args.devcontainer:
        return f"devcontainer:{project}"
    return f"container:{args.container} # {project}"


def _ask(text: str, *, trusts: bool) -> bool:
    """Show the commands in `text`, and ask whether to run them. Return the answer.

    If `trusts`, return True without asking.
    """
    print_lines(text)
    if trusts:
        return True
    if not is_interactive():
        raise BadInput(
            "there is no terminal to allow these commands at: run the same at one, or repeat "
            "it with --trust"
        )
    print_lines("Run these commands? [y/N]")
    return read_yes()
