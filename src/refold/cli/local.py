"""`refold local install|status|stop|remove`: the embedded models of this machine."""

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from refold.config.paths import paths
from refold.errors import BadInput
from refold.headless.streams import write
from refold.provider.local.download import (
    HOW_TO_GET_RUNTIME,
    DownloadProgress,
    Source,
    fetch,
    is_runtime_installed,
    parse_source,
)
from refold.provider.local.gguf import read_header
from refold.provider.local.hub import NAME_SCHEME, Hub, parse_name, usual_sources
from refold.provider.local.machine import this_machine
from refold.provider.local.models import (
    DEFAULT_MODEL,
    EMBEDDED_MODELS,
    HUB_MODELS,
    KNOWN_MODELS,
    LocalModel,
    ModelDirectory,
    ModelSource,
    default_directory,
    find,
)
from refold.provider.local.own_model import add_to_directory, hub_model, own_model
from refold.provider.local.server import (
    ServerStatus,
    context_tokens,
    machine_memory,
    running_servers,
    stop,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_PROGRESS_PERCENT = 5  # percent between two lines, without a terminal


def add_arguments(local: ArgumentParser) -> None:
    subparsers = local.add_subparsers(dest="what", metavar="WHAT", required=True)
    names = [model.name for model in KNOWN_MODELS]
    install = subparsers.add_parser("install", help="download a model and verify it")
    install.add_argument(
        "place",
        nargs="?",
        default="",
        metavar="NAME|hf:ORG/REPO[:QUANT]|FILE|URL",
        help="a model that refold knows, a GGUF file of Hugging Face, or one of your own",
    )
    install.add_argument(
        "--from",
        dest="source",
        metavar="FILE|URL",
        help="download it from here only",
    )
    remove = subparsers.add_parser("remove", help="delete a model")
    status = subparsers.add_parser(
        "status", help="list the models, what they need, and whether they can run"
    )
    stop = subparsers.add_parser(
        "stop", help="end the servers of embedded models, free the memory"
    )
    for parser in (install, remove, status, stop):
        parser.add_argument(
            "--model", metavar="NAME", default="", help=f"{', '.join(names)}, or your own"
        )


def run(args: Namespace) -> int:
    model_files = ModelDirectory(default_directory(os.environ))
    match args.what:
        case "install":
            return _install(args, model_files)
        case "remove":
            return _remove(args.model, model_files)
        case "stop":
            return _stop(
                model_files.path_of(model_files.find(args.model)) if args.model else None
            )
        case _:
            every = model_files.list_all()
            return _status(
                [model_files.find(args.model)] if args.model else every, model_files
            )


def _install(args: Namespace, model_files: ModelDirectory) -> int:
    place, name = args.place, args.model
    if any(place in (model.name, f"local/{model.name}") for model in KNOWN_MODELS):
        if name:
            raise BadInput(f"give one name, either {place} or --model {name}")
        place, name = "", place
    if place and (name or args.source):
        raise BadInput("give either FILE|URL of your own model, or --model and --from")
    if place.startswith(NAME_SCHEME):
        return install_from_hub(*parse_name(place), model_files)
    if place:
        return install_file(place, model_files)
    return install(find(name or DEFAULT_MODEL.name), model_files, args.source or "")


def install(model: LocalModel, model_files: ModelDirectory, place: str = "") -> int:
    """Fetch `model`, and print the progress. Raises `RefoldError` if it cannot be fetched."""
    if model in HUB_MODELS:
        if place:
            return install_file(place, model_files, model.name)
        return install_from_hub(model.repository, model.quant, model_files)
    if model_files.is_installed(model):
        write(f"{model.name} is already installed: {model_files.path_of(model)}\n")
        return _print_runtime()
    if place:
        sources: Sequence[Source] = (parse_source(place),)
    else:
        sources = usual_sources(model, model_files, Hub.from_environ(os.environ))
    origin = _fetch(model, sources, model_files)
    write(f"checked: sha256 {origin.sha256}\nfrom {origin.source}\n")
    write(f"use it with: refold -m local/{model.name}\n")
    return _print_runtime()


def install_from_hub(repository: str, quant: str, model_files: ModelDirectory) -> int:
    """Install a file of the hub. Raises `RefoldError` if it cannot be fetched."""
    hub = Hub.from_environ(os.environ)
    file = hub.file(repository, quant)
    model = hub_model(repository, file)
    if model in EMBEDDED_MODELS:
        return install(model, model_files)
    if any(
        (m.name, m.sha256) == (model.name, model.sha256)
        for m in model_files.list_installed()
    ):
        write(f"{model.name} is already installed: {model_files.path_of(model)}\n")
        return _print_runtime()
    write(f"{file.path} of {repository}\n")
    origin = _fetch(model, hub.sources(repository, file), model_files)
    write(
        f"checked: sha256 {origin.sha256}, as {hub.host} states it\nfrom {origin.source}\n"
    )
    return _add_model(model, origin, model_files)


def install_file(place: str, model_files: ModelDirectory, name: str = "") -> int:
    """Install the user's own GGUF file. Raises `RefoldError` if it cannot be fetched."""
    model = own_model(place, name)
    origin = _fetch(model, (parse_source(place),), model_files)
    write(f"sha256 {origin.sha256}\n")
    return _add_model(model, origin, model_files)


def _fetch(
    model: LocalModel, sources: Sequence[Source], model_files: ModelDirectory
) -> ModelSource:
    machine = this_machine(os.environ)
    write(f"{model.name}: {_size(model.size)}, into {model_files.directory}\n")
    need = f"about {_size(model.memory)} of memory"
    write(f"needs {need}: {machine.describe_fit(model.memory)} ({machine.text})\n")
    if partial_size := model_files.partial_size(model):
        write(f"resuming after {_size(partial_size)} of an earlier try\n")
    tell = _progress_bar() if sys.stdout.isatty() else _progress_lines()
    try:
        return fetch(model, sources, model_files, tell)
    except KeyboardInterrupt:
        size = _size(model_files.partial_size(model))
        write(f"\nstopped after {size}: run the same command to resume\n")
        raise


def _add_model(model: LocalModel, origin: ModelSource, model_files: ModelDirectory) -> int:
    """Read the model's properties from the file, and print them."""
    entry = add_to_directory(model, origin, model_files)
    header = read_header(model_files.path_of(entry))
    facts = [header.architecture or "unknown architecture"]
    if header.parameters:
        facts.append(f"{header.parameters / 1e9:.1f} billion parameters")
    used = context_tokens(entry, machine_memory())
    known = f"{header.context:,} tokens of context" if header.context else "context unknown"
    facts.append(f"{known}, {used:,} used" if used < header.context else known)
    template = "its own chat template"
    facts.append(template if header.has_template else "no chat template: ChatML")
    facts.append(f"tool calls in {'its own' if entry.calls_tools else 'JSON'} format")
    write(f"{', '.join(facts)}\nuse it with: refold -m local/{entry.name}\n")
    return _print_runtime()


def _status(models: list[LocalModel], model_files: ModelDirectory) -> int:
    machine = this_machine(os.environ)
    write(f"models are stored in {model_files.directory}\n{machine.text}\n")
    for model in models:
        name = f"local/{model.name}"
        if model_files.is_installed(model):
            origin = model_files.origin(model)
            source = f", from {origin.source}, {origin.at[:10]}" if origin else ""
            write(f"{name}  installed, {_size(model.size)}{source}\n")
        elif partial_size := model_files.partial_size(model):
            part = f"{_size(partial_size)} of {_size(model.size)}"
            write(
                f"{name}  partly downloaded, {part}: refold local install --model {model.name}\n"
            )
        else:
            needs = f"{_size(model.size)} download, about {_size(model.memory)} of memory"
            write(f"{name}  not installed, {needs}: {machine.describe_fit(model.memory)}\n")
    for server in _servers():
        write(f"{_server_text(server)}\n")
    return _print_runtime()


def _stop(model: Path | None) -> int:
    """End all servers, or those of one model file."""
    servers = [entry for entry in _servers() if model in (None, Path(entry.record.model))]
    for server in servers:
        stop(server)
        freed_text = f", {_size(server.memory)} are free again" if server.memory else ""
        write(
            f"the server of {_model_name(server)} (process {server.record.pid}) ended{freed_text}\n"
        )
    if not servers:
        write("no server of an embedded model is running\n")
    return 0


def _servers() -> list[ServerStatus]:
    return list(running_servers(paths(os.environ).state / "local", time.time()))


def _server_text(server: ServerStatus) -> str:
    record = server.record
    if server.in_use:
        now = "in use"
    else:
        left = max(0.0, record.keep - server.idle)
        now = f"idle for {server.idle:.0f} s, ends in {left:.0f} s"
    memory = f", {_size(server.memory)} of memory" if server.memory else ""
    return f"server of {_model_name(server)}: process {record.pid}{memory}, {now}"


def _model_name(server: ServerStatus) -> str:
    return Path(server.record.model).name


def _remove(name: str, model_files: ModelDirectory) -> int:
    here = model_files.list_installed()
    if not name and len(here) > 1:
        names = " or ".join(item.name for item in here)
        raise BadInput(f"there is more than one model here: say --model {names}")
    model = model_files.find(name) if name else next(iter(here), DEFAULT_MODEL)
    freed_bytes = model_files.remove(model)
    if freed_bytes:
        write(f"{model.name} is removed, {_size(freed_bytes)} are free again\n")
    else:
        write(f"{model.name} is not installed: there is nothing to remove\n")
    return 0


def _print_runtime() -> int:
    if is_runtime_installed():
        write("llama.cpp (xllamacpp) is installed\n")
    else:
        write(f"llama.cpp is missing, without it no model runs: {HOW_TO_GET_RUNTIME}\n")
    return 0


def _progress_bar() -> "Callable[[DownloadProgress], None]":
    """Return a function that shows the progress in one line of a terminal."""
    shown = ""

    def show_progress(progress: DownloadProgress) -> None:
        nonlocal shown
        if progress.failed:
            shown = ""
            write(f"\r\x1b[K{progress.source}: {progress.failed}\n")
        elif (line := _line(progress)) != shown:
            shown = line
            write(f"\r\x1b[K{line}{chr(10) if progress.done == progress.total else ''}")

    return show_progress


def _progress_lines() -> "Callable[[DownloadProgress], None]":
    """Return a function that prints the progress now and then, for a log."""
    last = ("", -1)

    def show_progress(progress: DownloadProgress) -> None:
        nonlocal last
        step = (progress.source, 100 * progress.done // progress.total // _PROGRESS_PERCENT)
        if progress.failed:
            write(f"{progress.source}: {progress.failed}\n")
        elif step != last:
            last = step
            write(f"{_line(progress)}\n")

    return show_progress


def _line(progress: DownloadProgress) -> str:
    size, total = _size(progress.done), _size(progress.total)
    percent = 100 * progress.done // progress.total
    return f"{percent:3} %  {size} of {total}  {progress.source}"


def _size(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
