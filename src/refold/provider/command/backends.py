"""Finds command lines by name, and makes providers of them.

`builtin` has those that refold knows, `spec` reads the user's own. The caller names the
other variables that hold secrets.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches

from msgspec.structs import replace

from refold.errors import BadInput
from refold.programs import Programs
from refold.provider.catalog import providers
from refold.provider.command import errors
from refold.provider.command.backend import CommandLine
from refold.provider.command.builtin import backends
from refold.provider.command.config import key_names
from refold.provider.command.spec import (
    OWN,
    CommandSpec,
    ConversationFormat,
    ProgramTimeouts,
)
from refold.provider.command.workplace import without_keys


def find(name: str, known: Sequence[CommandSpec] = ()) -> CommandSpec:
    """The one of that name. Raises `BadInput` with the nearest ones."""
    known = known or backends()
    for spec in known:
        if spec.name == name.lower():
            return spec
    names = [spec.name for spec in known]
    near = get_close_matches(name.lower(), names, cutoff=0.5) or names
    raise BadInput(f"there is no command line {name!r}; did you mean {' or '.join(near)}?")


def named(text: str, own: Sequence[CommandSpec] = ()) -> tuple[CommandSpec, str] | None:
    """The program and model of a name like codex-cli/MODEL or command/NAME/MODEL.

    None where the name is not one of a command line. Raises `BadInput` where it
    is, and there is none of that name, or it lacks its model.
    """
    first, _, rest = text.partition("/")
    if first.lower() == OWN:
        name, _, model = rest.partition("/")
        if not own:
            raise BadInput(
                f"{text!r}: there are no commands of your own; describe one in the "
                f'settings: [commands.{name or "NAME"}] command = ["prog", …]'
            )
        spec = find(f"{OWN}/{name}", own)
    elif any(spec.name == first.lower() for spec in backends()):
        spec, model = find(first), rest
    else:
        return None
    model = model or spec.model
    if model.startswith("-"):
        raise BadInput(f"{text!r}: a model's name cannot begin with -")
    if spec.needs_model and not model:
        raise BadInput(f"{text!r} names no model: say {spec.name}/MODEL")
    return spec, model


def own_server(name: str, host: str, port: int) -> Mapping[str, str] | None:
    """The variables that make a program ask a server of one's own.

    None where `name` is not one of a command line. Raises `BadInput` for one that
    takes no such address.
    """
    first = name.partition("/")[0].lower()
    if first == OWN:
        raise BadInput(
            f"--host and --port mean nothing to {name!r}: set what its program listens to "
            "in the settings, environ in [commands.NAME]"
        )
    if not any(spec.name == first for spec in backends()):
        return None
    spec = find(first)
    if not spec.host_env:
        raise BadInput(
            f"{spec.label} asks servers of its own choice: --host and --port are for a "
            "server of yours, as with -b ollama-cli"
        )
    host = f"[{host}]" if ":" in host and not host.startswith("[") else host
    host = host or "127.0.0.1"
    return {spec.host_env: f"{host}:{port}" if port else host}


def connect(
    spec: CommandSpec,
    model: str,
    *,
    environ: Mapping[str, str],
    secrets: Collection[str] = (),
    talk: ConversationFormat | None = None,
    patience: ProgramTimeouts | None = None,
) -> CommandLine:
    """A provider to ask. What `talk` leaves open is as `spec` has it.

    The program does not see the variables with keys of what is built in, nor those
    of the names in `secrets`, but for its own `keys`.
    Raises `BadInput` where the program is not installed, or would use tools of
    its own that nobody here could forbid.
    """
    if spec.tools == "on":
        raise BadInput(
            f"{spec.label} uses tools of its own and cannot be told not to, so no permission "
            "of yours would hold: it needs the read-only sandbox, which is not there yet; "
            "take another model"
        )
    program = os.path.expanduser(spec.argv[0])
    known = Programs(environ)
    found = known.find(program)
    if not found:
        if known.passed_over(program):
            known.need(program)
        raise BadInput(errors.missing(spec, spec.argv[0]))
    patience = patience or ProgramTimeouts()
    if spec.idle:
        patience = replace(patience, idle=spec.idle)
    built_in = {name for other in providers() for name in other.secret_envs}
    keys = built_in | key_names({}) | set(secrets)
    return CommandLine(
        spec,
        model,
        os.path.abspath(found),
        environ=without_keys(environ, keys, spec.keys),
        talk=(talk or ConversationFormat()).over(spec.talk),
        patience=patience,
    )
