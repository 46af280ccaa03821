"""`refold local install|status|stop|remove`: manages the embedded models of this machine."""

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

_PROGRESS_PERCENT = 5  # between two lines if there is no terminal


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
        "stop", help="end the servers of embedded models, which frees their memory"
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
            file = None
            if args.model:
                file = model_files.path_of(model_files.find(args.model))
            return _stop(file)
        case _:
            models = model_files.list_all()
            if args.model:
                models = [model_files.find(args.model)]
            return _status(models, model_files)


def _install(args: Namespace, model_files: ModelDirectory) -> int:
    """Install the model that the flags name, or else the default one. Return the exit code."""
    place, name = args.place, args.model
    known_names = {
        alias for model in KNOWN_MODELS for alias in (model.name, f"local/{model.name}")
    }
    if place in known_names:  # the first argument means the same as --model
        if name:
            raise BadInput(f"give one name, either {place} or --model {name}")
        place, name = "", place
    if place and (name or args.source):
        raise BadInput("give either FILE|URL of your own model, or --model and --from")
    if place.startswith(NAME_SCHEME):
        repository, quant = parse_name(place)
        return install_from_hub(repository, quant, model_files)
    if place:
        return install_file(place, model_files)
    model = find(name or DEFAULT_MODEL.name)
    return install(model, model_files, place=args.source or "")


def install(model: LocalModel, model_files: ModelDirectory, place: str = "") -> int:
    """Download `model`, and print the progress. Return the exit code.

    `place` is another URL or path for the file, or "". Raises `RefoldError` if the download
    fails.
    """
    if model in HUB_MODELS:
        if place:
            return install_file(place, model_files, name=model.name)
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
    """Install a model file of the repository on the Hugging Face hub. Return the exit code.

    `quant` is the quantization or the name of the file; "" chooses the usual file. Raises
    `RefoldError` if the download fails.
    """
    hub = Hub.from_environ(os.environ)
    file = hub.file(repository, quant)
    model = hub_model(repository, file)
    if model in EMBEDDED_MODELS:
        return install(model, model_files)
    installed = {(known.name, known.sha256) for known in model_files.list_installed()}
    if (model.name, model.sha256) in installed:
        write(f"{model.name} is already installed: {model_files.path_of(model)}\n")
        return _print_runtime()
    write(f"{file.path} of {repository}\n")
    origin = _fetch(model, hub.sources(repository, file), model_files)
    write(
        f"checked: sha256 {origin.sha256}, as {hub.host} states it\nfrom {origin.source}\n"
    )
    return _add_model(model, origin, model_files)


def install_file(place: str, model_files: ModelDirectory, name: str = "") -> int:
    """Install a GGUF file that is not in the catalogue, from the path or URL `place`.

    Raises `RefoldError` if the file cannot be read or downloaded.
    """
    model = own_model(place, name)
    origin = _fetch(model, (parse_source(place),), model_files)
    write(f"sha256 {origin.sha256}\n")
    return _add_model(model, origin, model_files)


def _fetch(
    model: LocalModel, sources: Sequence[Source], model_files: ModelDirectory
) -> ModelSource:
    """Download the model, and print the progress. Return the source that provided it."""
    machine = this_machine(os.environ)
    write(f"{model.name}: {_format_bytes(model.size)}, into {model_files.directory}\n")
    need = f"about {_format_bytes(model.memory)} of memory"
    write(f"needs {need}: {machine.describe_fit(model.memory)} ({machine.text})\n")
    if partial_size := model_files.partial_size(model):
        write(f"resuming after {_format_bytes(partial_size)} of an earlier try\n")
    tell = _progress_bar() if sys.stdout.isatty() else _progress_lines()
    try:
        return fetch(model, sources, model_files, tell)
    except KeyboardInterrupt:
        size = _format_bytes(model_files.partial_size(model))
        write(f"\nstopped after {size}: run the same command to resume\n")
        raise


def _add_model(model: LocalModel, origin: ModelSource, model_files: ModelDirectory) -> int:
    """Add the model to the directory of models, and print its properties.

    Return the exit code.
    """
    entry = add_to_directory(model, origin, model_files)
    header = read_header(model_files.path_of(entry))
    facts = [header.architecture or "unknown architecture"]
    if header.parameters:
        facts.append(f"{header.parameters / 1e9:.1f} billion parameters")
    facts.append(
        f"{header.context:,} tokens of context" if header.context else "context unknown"
    )
    used = context_tokens(entry, machine_memory())
    if used < header.context:  # this machine has too little memory for more
        facts.append(f"{used:,} used")
    facts.append(
        "its own chat template" if header.has_template else "no chat template: ChatML"
    )
    call_format = "its own" if entry.calls_tools else "JSON"
    facts.append(f"tool calls in {call_format} format")
    write(f"{', '.join(facts)}\nuse it with: refold -m local/{entry.name}\n")
    return _print_runtime()


def _status(models: list[LocalModel], model_files: ModelDirectory) -> int:
    """Print the models, the running servers and whether llama.cpp is installed. Return 0."""
    machine = this_machine(os.environ)
    write(f"models are stored in {model_files.directory}\n{machine.text}\n")
    for model in models:
        name = f"local/{model.name}"
        if model_files.is_installed(model):
            origin = model_files.origin(model)
            source = f", from {origin.source}, {origin.at[:10]}" if origin else ""
            write(f"{name}  installed, {_format_bytes(model.size)}{source}\n")
        elif partial_size := model_files.partial_size(model):
            part = f"{_format_bytes(partial_size)} of {_format_bytes(model.size)}"
            write(
                f"{name}  partly downloaded, {part}: refold local install --model {model.name}\n"
            )
        else:
            needs = f"{_format_bytes(model.size)} download, about {_format_bytes(model.memory)} of memory"
            write(f"{name}  not installed, {needs}: {machine.describe_fit(model.memory)}\n")
    for server in _servers():
        write(f"{_server_text(server)}\n")
    return _print_runtime()


def _stop(model: Path | None) -> int:
    """Stop the servers of the model file `model`. If `model` is None, stop all servers.

    Return the exit code.
    """
    servers = _servers()
    if model is not None:
        servers = [server for server in servers if Path(server.record.model) == model]
    for server in servers:
        stop(server)
        text = f"the server of {_model_name(server)} (process {server.record.pid}) ended"
        if server.memory:
            text += f", {_format_bytes(server.memory)} are free again"
        write(f"{text}\n")
    if not servers:
        write("no server of an embedded model is running\n")
    return 0


def _servers() -> list[ServerStatus]:
    return list(running_servers(paths(os.environ).state / "local", time.time()))


def _server_text(server: ServerStatus) -> str:
    """Return a line about a running server: its process, its memory and its state."""
    record = server.record
    if server.in_use:
        state = "in use"
    else:
        remaining = max(0.0, record.keep - server.idle)
        state = f"idle for {server.idle:.0f} s, ends in {remaining:.0f} s"
    memory = f", {_format_bytes(server.memory)} of memory" if server.memory else ""
    return f"server of {_model_name(server)}: process {record.pid}{memory}, {state}"


def _model_name(server: ServerStatus) -> str:
    return Path(server.record.model).name


def _remove(name: str, model_files: ModelDirectory) -> int:
    """Delete the model `name`. "" means the installed model, or else the default. Return 0.

    Raises `BadInput` if `name` is "" and several models are installed.
    """
    installed = model_files.list_installed()
    if not name and len(installed) > 1:
        names = " or ".join(item.name for item in installed)
        raise BadInput(f"there is more than one model here: say --model {names}")
    model = model_files.find(name) if name else next(iter(installed), DEFAULT_MODEL)
    freed_bytes = model_files.remove(model)
    if freed_bytes:
        write(f"{model.name} is removed, {_format_bytes(freed_bytes)} are free again\n")
    else:
        write(f"{model.name} is not installed: there is nothing to remove\n")
    return 0


def _print_runtime() -> int:
    """Print whether llama.cpp is installed. Always return exit code 0."""
    if is_runtime_installed():
        write("llama.cpp (xllamacpp) is installed\n")
    else:
        write(f"llama.cpp is missing, without it no model runs: {HOW_TO_GET_RUNTIME}\n")
    return 0


def _progress_bar() -> "Callable[[DownloadProgress], None]":
    """Return a function that shows the progress of a download in one line of a terminal."""
    shown = ""
    restart_line = "\r\x1b[K"  # go to the start of the line, and erase it

    def show_progress(progress: DownloadProgress) -> None:
        nonlocal shown
        if progress.failed:
            shown = ""
            write(f"{restart_line}{progress.source}: {progress.failed}\n")
        elif (line := _progress_text(progress)) != shown:
            shown = line
            end = "\n" if progress.done == progress.total else ""
            write(f"{restart_line}{line}{end}")

    return show_progress


def _progress_lines() -> "Callable[[DownloadProgress], None]":
    """Return a function that prints a line after every 5 percent of a download."""
    last_step = ("", -1)

    def show_progress(progress: DownloadProgress) -> None:
        nonlocal last_step
        percent = _percent(progress)
        step = (progress.source, percent // _PROGRESS_PERCENT)
        if progress.failed:
            write(f"{progress.source}: {progress.failed}\n")
        elif step != last_step:
            last_step = step
            write(f"{_progress_text(progress)}\n")

    return show_progress


def _progress_text(progress: DownloadProgress) -> str:
    size, total = _format_bytes(progress.done), _format_bytes(progress.total)
    return f"{_percent(progress):3} %  {size} of {total}  {progress.source}"


def _percent(progress: "DownloadProgress") -> int:
    return 100 * progress.done // progress.total if progress.total else 0


def _format_bytes(count: int) -> str:
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.0f} MB"
