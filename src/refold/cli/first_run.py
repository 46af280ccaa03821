"""The first run: if no model is chosen yet, ask for one, and set it up.

`choose` only asks and shows; how a key is checked and stored, a model downloaded and a setting
written is passed in as `FirstRunOffers`. Nothing is asked of a session that has a key or a setting.
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
_SHOWN_MODELS = 9  # of one server: each has a key to press
_MAX_NAME_CHARS = 16  # of a provider; what is longer may be a key
_UNCHECKED_CHOICES = ("check again", "type another key", "keep it unchecked", "back")
_SMALL_MODEL = "for small tasks, not for large changes"


class FirstChoice(Struct, frozen=True):
    """`model` is the full name, provider/model, of what was chosen."""

    what: Literal["model", "tour", "leave"]
    model: str = ""


class Embedded(Struct, frozen=True):
    """A model that can be downloaded and runs on this machine's CPU."""

    name: str
    size: int  # bytes
    about: str = ""


class FirstRunOffers(Struct, frozen=True, kw_only=True):
    """What can be chosen, and the functions that set it up.

    `check_key(provider, key)` raises `Refused` if the provider does not accept the key, another
    `ProviderError` if it could not be asked. `keep_key(provider, key)` stores it and returns the
    model to use with it. `install(name)` downloads a model, shows the progress and returns its
    full name. `remember(setting, value)` writes a setting of the person. All of them may raise
    `RefoldError`; then the error is shown and the question asked again.
    """

    providers: Sequence[str]
    check_key: Callable[[str, str], Awaitable[None]]
    keep_key: Callable[[str, str], Awaitable[str]]
    servers: Sequence[LocalServer] = ()
    embedded: Sequence[Embedded] = ()
    install: Callable[[str], Awaitable[str]]
    remember: Callable[[str, str], Awaitable[None]]


class _Row(Struct, frozen=True):
    text: str
    about: str
    does: Callable[[], Awaitable[FirstChoice | None]]


def first_run(app: App) -> bool:
    """Ask for a model. True if there is one now."""
    return anyio.run(_first_run, app)


async def _first_run(app: App) -> bool:
    places, options = app.paths, app.settings.terminal
    here = open_terminal(display=options.display, theme=options.theme)
    choice = await choose(_offers(app), *here)
    if choice.what == "tour":
        await give_tour(session_opener(places), *here)
    return choice.what == "model"


def _offers(app: App) -> FirstRunOffers:
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
    """Ask until something is chosen, and set that up."""
    if printer is None or reader is None:
        printer, reader = open_terminal()
    return await _ModelQuestions(offers, printer, reader).choose()


class _ModelQuestions:
    def __init__(
        self, offers: FirstRunOffers, printer: Printer, reader: TerminalReader
    ) -> None:
        self._offers, self._printer, self._reader = offers, printer, reader

    async def choose(self) -> FirstChoice:
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
                pressed = await self._reader.choose(_menu(labels, "quit"))
                choice = await self._act_on_answer(pressed, rows)
            except RefoldError as error:
                say(visible(str(error)), "bad")
                continue
            if choice is not None:
                return choice

    async def _act_on_answer(
        self, answer: str | DraftMessage | Key, rows: Sequence[_Row]
    ) -> FirstChoice | None:
        """Do what was chosen. A key or the name of a provider may be typed instead."""
        numbers = [str(n) for n in range(1, len(rows) + 1)]
        match answer:
            case Key.CTRL_C:
                raise KeyboardInterrupt
            case Key():
                return FirstChoice("leave")
            case DraftMessage(words) if words.strip() not in numbers:
                return await self._take_key_or_name(words.strip())
            case DraftMessage(number) | str(number):
                return await rows[int(number) - 1].does()

    def _rows(self) -> list[_Row]:
        offers = self._offers
        more = len(offers.providers) - _MAX_MENU_PROVIDERS
        several = ", ".join(offers.providers[:_MAX_MENU_PROVIDERS])
        several += f" and {more} more" if more > 0 else ""
        rows = [
            _Row(
                "an API key",
                f"{several}; stored in a file only you can read",
                self._set_up_provider,
            )
        ]
        for server in offers.servers:
            count = len(server.models)
            about = f"{count} models" if count > 1 else server.models[0].partition("/")[2]
            title = f"{server.label} on this machine"
            rows.append(_Row(title, escape_to_one_line(about), self._server_choice(server)))
        rows += [
            _Row(f"{model.name}, embedded", _about_model(model), self._install(model.name))
            for model in offers.embedded
        ]
        return [
            *rows,
            _Row("a guided tour", "no key, no network, one minute", self._choose_tour),
        ]

    async def _set_up_provider(self) -> FirstChoice | None:
        names = self._offers.providers
        self._printer.print_text(
            f"Paste a key, which is not shown, or type a provider: {', '.join(names)}",
            "dim",
        )
        while True:
            prompt: Line = (("plain", "Key or provider: "),)
            typed = _stop_at_ctrl_c(await self._reader.read_secret(prompt, _may_be_name))
            if isinstance(typed, Key) or not typed.strip():
                return None
            try:
                return await self._take_key_or_name(typed.strip())
            except BadInput as error:
                self._printer.print_text(visible(str(error)), "bad")

    async def _take_key_or_name(self, text: str) -> FirstChoice | None:
        """Set up the provider of this key, or the one with this name. Raises `BadInput`."""
        if maker := maker_of(text):
            return await self._set_up_key(maker, text)
        if len(text) > _MAX_NAME_CHARS or looks_like_key(text):
            if name := await self._pick_provider():
                return await self._set_up_key(name, text)
            return None
        names = self._offers.providers
        name = catalog.find(text.lower()).name
        if name not in names:
            raise unknown_provider_error(text, names)
        return await self._set_up_key(name)

    async def _pick_provider(self) -> str:
        """The provider of a key that does not say whose it is; "" if the user leaves."""
        names = self._offers.providers
        items = tuple(PickerItem(name, partial(_row, name), name) for name in names)
        picker = Picker("Whose key is it?", items)
        picked = await pick(self._printer, self._reader, picker)
        return picked.selection.id if picked and picked.selection else ""

    async def _set_up_key(self, name: str, key: str = "") -> FirstChoice | None:
        """Check and store a key of this provider; without `key`, ask for one."""
        if (page := KEY_PAGES.get(name)) and not key:
            self._printer.print_text(f"Keys are made at {page}", "dim")
        while True:
            key = key if key and self._is_key_of(name, key) else await self._read_key(name)
            if not key:
                self._printer.print_text("No key was given.", "warn")
                return None
            if (is_kept := await self._check_key(name, key)) is not None:
                return (
                    await self._choose_model(await self._offers.keep_key(name, key))
                    if is_kept
                    else None
                )
            key = ""

    async def _read_key(self, name: str) -> str:
        """Return a key that looks like one of this provider; "" for none."""
        prompt: Line = (("plain", f"The key for {name} (it is not shown): "),)
        while True:
            key = _stop_at_ctrl_c(await self._reader.read_secret(prompt))
            if isinstance(key, Key) or not (key := key.strip()):
                return ""
            if self._is_key_of(name, key):
                return key

    def _is_key_of(self, name: str, key: str) -> bool:
        """Whether the key looks like one of this provider. Says why not."""
        maker = maker_of(key) or name
        if problem := key_problem(key):
            self._printer.print_text(f"This is not a key: {problem}.", "bad")
        elif maker != name:
            self._printer.print_text(f"This is a key for {maker}. It was not sent.", "bad")
        return not problem and maker == name

    async def _check_key(self, name: str, key: str) -> bool | None:
        """Return True to store the key, None if the user will type another one."""
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
                return True
            match await self._choose_number(_UNCHECKED_CHOICES):
                case 1:
                    continue
                case 2:
                    return None
                case 3:
                    return True
                case _:
                    return False

    async def _choose_number(self, labels: Sequence[str]) -> int:
        """The number of the choice; 0 if the user leaves the question."""
        while True:
            match await self._reader.choose(_menu(labels, "back")):
                case DraftMessage():
                    self._printer.print_text(
                        "Choose with the arrows or a digit, and Enter.", "dim"
                    )
                case Key.CTRL_C:
                    raise KeyboardInterrupt
                case Key():
                    return 0
                case number:
                    return int(number)

    def _server_choice(
        self, server: LocalServer
    ) -> Callable[[], Awaitable[FirstChoice | None]]:
        async def ask() -> FirstChoice | None:
            names = server.models[:_SHOWN_MODELS]
            if len(names) == 1:
                return await self._choose_model(names[0])
            if left := len(server.models) - len(names):
                self._printer.print_text(
                    f"and {left} more; /model chooses them later", "dim"
                )
            number = await self._choose_number([escape_to_one_line(name) for name in names])
            return await self._choose_model(names[number - 1]) if number else None

        return ask

    def _install(self, name: str) -> Callable[[], Awaitable[FirstChoice]]:
        async def install() -> FirstChoice:
            return await self._choose_model(await self._offers.install(name))

        return install

    async def _choose_tour(self) -> FirstChoice:
        return FirstChoice("tour")

    async def _choose_model(self, model: str) -> FirstChoice:
        await self._offers.remember("model", model)
        self._printer.print_text(
            f"{escape_to_one_line(model)} is now the default model. /model changes it.",
            "good",
        )
        return FirstChoice("model", model)


def _menu(labels: Sequence[str], leave: str) -> Menu:
    return Menu(tuple(Choice(str(n), text) for n, text in enumerate(labels, 1)), leave)


def _row(name: str, _: int) -> Line:
    return (("plain", name),)


def _may_be_name(text: str) -> bool:
    """Whether the text may be the name of a provider, misspelled or not, and is shown."""
    if len(text) > _MAX_NAME_CHARS or looks_like_key(text):
        return False
    return all(letter.isalpha() or letter == "-" for letter in text)


def _about_model(model: Embedded) -> str:
    minutes = duration(
        60 * max(1, round(model.size / _BYTES_PER_SECOND / 60))
    ).removesuffix(" 00 s")
    about = f"; {model.about}" if model.about else ""
    return f"{model.size / 1e9:.1f} GB download, about {minutes}{about}"


def _stop_at_ctrl_c(answer: str | Key) -> str | Key:
    """End the program at Ctrl+C, whether it comes as a key or as a signal."""
    if answer is Key.CTRL_C:
        raise KeyboardInterrupt
    return answer
