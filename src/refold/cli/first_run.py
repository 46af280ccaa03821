"""Asks for a model at the first run, and sets it up.

If a key or a model is already set, nothing is asked. The function `choose` asks the questions.
Its caller passes `FirstRunOffers`: functions that check and store a key, download a model or
write a setting.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Literal

import anyio
from msgspec import Struct

from refold.app.app import App
from refold.app.local_servers import LocalServer, local_servers
from refold.app.model_connections import LOCAL_PREFIX
from refold.cli.local import install
from refold.cli.tour import give_tour, session_opener
from refold.client.settings.provider_keys import KEY_PAGES, try_key
from refold.config.api_keys import key_problem
from refold.config.credentials import store
from refold.config.set_setting import remember
from refold.console.list_prompt import pick
from refold.console.printer import Printer
from refold.console.reader import Key, TerminalReader
from refold.errors import BadInput, ProviderError, RefoldError, Refused
from refold.provider import catalog
from refold.provider.local.models import (
    EMBEDDED_MODELS,
    ModelDirectory,
    default_directory,
    find,
)
from refold.provider.spec import ProviderSpec, unknown_provider_error
from refold.terminal.this_terminal import open_terminal
from refold.values.key_shapes import looks_like_key, maker_of
from refold.views.escape import escape_to_one_line, visible
from refold.views.number_format import duration
from refold.views.picker import Picker, PickerItem
from refold.views.question_keys import Choice, DraftMessage, Menu
from refold.views.styled import Line

_BYTES_PER_SECOND = 5e6  # bytes per second of a usual connection
_MAX_MENU_PROVIDERS = 3  # providers in the menu; the next question lists all
_SHOWN_MODELS = 9  # models of one server, each selected by one key
_MAX_NAME_CHARS = 16  # the length of a provider's name; a longer text may be a key
_UNCHECKED_CHOICES = ("check again", "type another key", "keep it unchecked", "back")
_SMALL_MODEL = "for small tasks, not for large changes"


class FirstChoice(Struct, frozen=True):
    """The model that the user has chosen. `model` is its full name, provider/model."""

    kind: Literal["model", "tour", "leave"]
    model: str = ""


class Embedded(Struct, frozen=True):
    """A model that can be downloaded and run on the CPU of this machine."""

    name: str
    size: int  # bytes
    about: str = ""


class FirstRunOffers(Struct, frozen=True, kw_only=True):
    """The possible choices, and the functions that set them up.

    `check_key(provider, key)` raises `Refused` if the provider refuses the key, and another
    `ProviderError` if the provider cannot be reached. `keep_key(provider, key)` stores the key
    and returns the model to use with it. `install(name)` downloads a model, shows the progress
    and returns the full name. `remember(setting, value)` writes a setting of the user. If a
    function raises `RefoldError`, the error is shown and the question is asked again.
    """

    providers: Sequence[str]
    check_key: Callable[[str, str], Awaitable[None]]
    keep_key: Callable[[str, str], Awaitable[str]]
    servers: Sequence[LocalServer] = ()
    embedded: Sequence[Embedded] = ()
    install: Callable[[str], Awaitable[str]]
    remember: Callable[[str, str], Awaitable[None]]


class _Row(Struct, frozen=True):
    """A row of the menu.

    `set_up` does what the row offers, and returns None if the menu must be shown again.
    """

    text: str
    about: str
    set_up: Callable[[], Awaitable[FirstChoice | None]]


def first_run(app: App) -> bool:
    """Ask for a model. Return whether the user has chosen one."""
    return anyio.run(_first_run, app)


async def _first_run(app: App) -> bool:
    """Ask for a model, or give the tour. Return whether the user has chosen a model."""
    places, options = app.paths, app.settings.terminal
    printer, reader = open_terminal(display=options.display, theme=options.theme)
    choice = await choose(_offers(app), printer, reader)
    if choice.kind == "tour":
        await give_tour(session_opener(places), printer, reader)
    return choice.kind == "model"


def _offers(app: App) -> FirstRunOffers:
    """Return the possible choices on this machine, and the functions that set them up."""
    places = app.paths

    def spec(name: str) -> ProviderSpec:
        return catalog.find(name)

    async def check_key(name: str, key: str) -> None:
        await try_key(spec(name), os.environ, key)

    async def keep_key(name: str, key: str) -> str:
        store(places.credentials, name, key)
        return f"{name}/{spec(name).model}"

    async def fetch(name: str) -> str:
        model_files = ModelDirectory(default_directory(os.environ))
        await anyio.to_thread.run_sync(install, find(name), model_files)
        return LOCAL_PREFIX + name

    async def keep(setting: str, value: str) -> None:
        remember(places, setting, value)

    keyed = [item for item in catalog.providers() if item.key_env and item.model]
    return FirstRunOffers(
        # the key of openai is that of openai-chat, too
        providers=[item.name for item in keyed if item.name != "openai-chat"],
        check_key=check_key,
        keep_key=keep_key,
        servers=local_servers(os.environ),
        embedded=[Embedded(item.name, item.size, _SMALL_MODEL) for item in EMBEDDED_MODELS],
        install=fetch,
        remember=keep,
    )


async def choose(
    offers: FirstRunOffers,
    printer: Printer | None = None,
    reader: TerminalReader | None = None,
) -> FirstChoice:
    """Ask until the user has chosen a row of the menu, and set it up."""
    if printer is None or reader is None:
        printer, reader = open_terminal()
    return await _ModelQuestions(offers, printer, reader).choose()


class _ModelQuestions:
    """Asks which model to use, and sets it up."""

    def __init__(
        self, offers: FirstRunOffers, printer: Printer, reader: TerminalReader
    ) -> None:
        self._offers, self._printer, self._reader = offers, printer, reader

    async def choose(self) -> FirstChoice:
        """Show the menu until a choice was set up or the user leaves. Return the choice."""
        say = self._printer.print_text
        say("Welcome to refold.", "heading")
        say("No model is configured yet. Which one do you want to use?")
        if not self._offers.servers:
            say("No Ollama, LM Studio or llama.cpp server answers on this machine.", "dim")
        rows = self._rows()
        width = max(len(row.text) for row in rows)
        labels = [f"{row.text:{width}}  {row.about}" for row in rows]
        while True:
            self._printer.ensure_blank_line()
            try:
                pressed = await self._reader.choose(_menu(labels, leave="quit"))
                choice = await self._act_on_answer(pressed, rows)
            except RefoldError as error:
                say(visible(str(error)), "bad")
                continue
            if choice is not None:
                return choice

    async def _act_on_answer(
        self, answer: str | DraftMessage | Key, rows: Sequence[_Row]
    ) -> FirstChoice | None:
        """Set up what the user chose: a row of `rows`, a key, or a provider by its name.

        Return None to ask again.
        """
        numbers = [str(n) for n in range(1, len(rows) + 1)]
        match answer:
            case Key.CTRL_C:
                raise KeyboardInterrupt
            case Key():
                return FirstChoice("leave")
            case DraftMessage(words) if words.strip() not in numbers:
                return await self._take_key_or_name(words.strip())
            case DraftMessage(number) | str(number):  # a row, by its number
                return await rows[int(number) - 1].set_up()

    def _rows(self) -> list[_Row]:
        """Return the rows of the menu from top to bottom."""
        offers = self._offers
        more = len(offers.providers) - _MAX_MENU_PROVIDERS
        providers = ", ".join(offers.providers[:_MAX_MENU_PROVIDERS])
        if more > 0:
            providers += f" and {more} more"
        rows = [
            _Row(
                "an API key",
                f"{providers}; stored in a file only you can read",
                self._set_up_provider,
            )
        ]
        for server in offers.servers:
            count = len(server.models)
            _provider, _, first_name = server.models[0].partition("/")
            about = f"{count} models" if count > 1 else first_name
            title = f"{server.label} on this machine"
            rows.append(
                _Row(title, escape_to_one_line(about), self._server_question(server))
            )
        rows += [
            _Row(
                f"{model.name}, embedded",
                _about_model(model),
                self._installation(model.name),
            )
            for model in offers.embedded
        ]
        return [
            *rows,
            _Row("a guided tour", "no key, no network, one minute", self._choose_tour),
        ]

    async def _set_up_provider(self) -> FirstChoice | None:
        """Ask for a key or a provider, and set up the provider. Return None to go back."""
        names = self._offers.providers
        self._printer.print_text(
            f"Paste a key, which is not shown, or type a provider: {', '.join(names)}",
            "dim",
        )
        while True:
            prompt: Line = (("plain", "Key or provider: "),)
            typed = _raise_at_ctrl_c(await self._reader.read_secret(prompt, _may_be_name))
            if isinstance(typed, Key) or not typed.strip():
                return None
            try:
                return await self._take_key_or_name(typed.strip())
            except BadInput as error:
                self._printer.print_text(visible(str(error)), "bad")

    async def _take_key_or_name(self, text: str) -> FirstChoice | None:
        """Set up the provider with the key or the name `text`.

        Return None if the user goes back. Raises `BadInput` for an unknown name.
        """
        if maker := maker_of(text):
            return await self._set_up_key(maker, text)
        if len(text) > _MAX_NAME_CHARS or looks_like_key(text):  # a key of unknown origin
            if name := await self._pick_provider():
                return await self._set_up_key(name, text)
            return None
        names = self._offers.providers
        name = catalog.find(text.lower()).name
        if name not in names:
            raise unknown_provider_error(text, names)
        return await self._set_up_key(name)

    async def _pick_provider(self) -> str:
        """Ask to which provider a key belongs. Return its name, or "" if the user cancels."""
        names = self._offers.providers
        items = tuple(PickerItem(name, partial(_name_line, name), name) for name in names)
        picker = Picker("Whose key is it?", items)
        picked = await pick(self._printer, self._reader, picker)
        return picked.selection.id if picked and picked.selection else ""

    async def _set_up_key(self, name: str, key: str = "") -> FirstChoice | None:
        """Check and store a key of the provider `name`.

        Ask for a key if `key` is "" or belongs to another provider. Return None if the user
        goes back.
        """
        page = KEY_PAGES.get(name)
        if page and not key:
            self._printer.print_text(f"Keys are made at {page}", "dim")
        if key and not self._is_key_of(name, key):
            key = ""
        while True:
            if not key:
                key = await self._read_key(name)
            if not key:
                self._printer.print_text("No key was given.", "warn")
                return None
            match await self._check_key(name, key):
                case "store":
                    model = await self._offers.keep_key(name, key)
                    return await self._choose_model(model)
                case "retype":
                    key = ""
                case "back":
                    return None

    async def _read_key(self, name: str) -> str:
        """Ask for a key of the provider `name`, and return it; "" if none is typed."""
        prompt: Line = (("plain", f"The key for {name} (it is not shown): "),)
        while True:
            typed = _raise_at_ctrl_c(await self._reader.read_secret(prompt))
            if isinstance(typed, Key):
                return ""
            key = typed.strip()
            if not key or self._is_key_of(name, key):
                return key

    def _is_key_of(self, name: str, key: str) -> bool:
        """Return whether `key` looks like a key of the provider `name`. If not, print why."""
        maker = maker_of(key) or name
        if problem := key_problem(key):
            self._printer.print_text(f"This is not a key: {problem}.", "bad")
        elif maker != name:
            self._printer.print_text(f"This is a key for {maker}. It was not sent.", "bad")
        return not problem and maker == name

    async def _check_key(self, name: str, key: str) -> Literal["store", "retype", "back"]:
        """Ask the provider whether it accepts the key. If not, ask the user what to do next.

        Return the next step: to store the key, to retype it, or to go back.
        """
        while True:
            self._printer.print_text(f"Checking the key with {name}…", "dim")
            try:
                await self._offers.check_key(name, key)
            except Refused as error:
                self._printer.print_text(
                    visible(f"{name} does not accept the key: {error}"), "bad"
                )
            except (ProviderError, BadInput) as error:
                self._printer.print_text(
                    visible(f"The key could not be checked: {error}"), "warn"
                )
            else:
                self._printer.print_text(f"{name} accepts the key.", "good")
                return "store"
            match await self._choose_number(_UNCHECKED_CHOICES):
                case 1:  # check again
                    continue
                case 2:  # type another key
                    return "retype"
                case 3:  # keep it unchecked
                    return "store"
                case _:
                    return "back"

    async def _choose_number(self, labels: Sequence[str]) -> int:
        """Show the numbered `labels`. Return the number that the user chooses; 0 for none."""
        while True:
            match await self._reader.choose(_menu(labels, leave="back")):
                case DraftMessage():
                    self._printer.print_text(
                        "Choose with the arrows or a digit, and Enter.", "dim"
                    )
                case Key.CTRL_C:
                    raise KeyboardInterrupt
                case Key():
                    return 0
                case number:  # the id of a choice
                    return int(number)

    def _server_question(
        self, server: LocalServer
    ) -> Callable[[], Awaitable[FirstChoice | None]]:
        """Return a function that lets the user choose a model of `server`."""

        async def ask() -> FirstChoice | None:
            """Let the user choose a model, unless there is only one. Return None to go back."""
            names = server.models[:_SHOWN_MODELS]
            if len(names) == 1:
                return await self._choose_model(names[0])
            if more := len(server.models) - len(names):
                self._printer.print_text(
                    f"and {more} more; /model chooses them later", "dim"
                )
            number = await self._choose_number([escape_to_one_line(name) for name in names])
            return await self._choose_model(names[number - 1]) if number else None

        return ask

    def _installation(self, name: str) -> Callable[[], Awaitable[FirstChoice]]:
        """Return a function that installs the embedded model `name` and chooses it."""

        async def install() -> FirstChoice:
            return await self._choose_model(await self._offers.install(name))

        return install

    async def _choose_tour(self) -> FirstChoice:
        return FirstChoice("tour")

    async def _choose_model(self, model: str) -> FirstChoice:
        """Make `model` the default model, and return it as the user's choice."""
        await self._offers.remember("model", model)
        self._printer.print_text(
            f"{escape_to_one_line(model)} is now the default model. /model changes it.",
            "good",
        )
        return FirstChoice("model", model)


def _menu(labels: Sequence[str], leave: str) -> Menu:
    return Menu(tuple(Choice(str(n), text) for n, text in enumerate(labels, 1)), leave)


def _name_line(name: str, _: int) -> Line:
    """Return the row of the provider `name` in the picker. The width is ignored."""
    return (("plain", name),)


def _may_be_name(text: str) -> bool:
    """Return whether the typed text may be the (misspelled) name of a provider.

    Otherwise it may be a key, which must not be shown.
    """
    if len(text) > _MAX_NAME_CHARS or looks_like_key(text):
        return False
    return all(letter.isalpha() or letter == "-" for letter in text)


def _about_model(model: Embedded) -> str:
    """Return the size of the download, how long it takes, and what the model is for."""
    minutes = max(1, round(model.size / _BYTES_PER_SECOND / 60))
    # whole minutes, as in "2 min" instead of "2 min 00 s"
    download_time = duration(60 * minutes).removesuffix(" 00 s")
    about = f"; {model.about}" if model.about else ""
    return f"{model.size / 1e9:.1f} GB download, about {download_time}{about}"


def _raise_at_ctrl_c(answer: str | Key) -> str | Key:
    """Return the answer, but raise `KeyboardInterrupt` if it is the key Ctrl+C."""
    if answer is Key.CTRL_C:
        raise KeyboardInterrupt
    return answer
