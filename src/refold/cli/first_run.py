"""The first run: if no model is chosen yet, ask for one, and set it up.

`choose` only asks and shows; how a key is checked and stored, a model downloaded and a setting
written is passed in as `FirstRunOffers`. Nothing is asked of a session that has a key or a setting.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import anyio
from msgspec import Struct

from refold.app.app import App
from refold.app.local_servers import LocalServer, local_servers
from refold.app.model_connections import LOCAL_PREFIX
from refold.cli.auth import try_key
from refold.cli.local import install
from refold.cli.permissions import ClaudeRules
from refold.cli.tour import give_tour, opening_with
from refold.config.api_keys import key_problem
from refold.config.credentials import store
from refold.config.set_setting import remember
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
from refold.provider.spec import ProviderSpec, no_provider
from refold.terminal.this_terminal import this_terminal
from refold.views.escape import on_one_line, visible
from refold.views.number_format import duration
from refold.views.styled import Line

_BYTES_PER_SECOND = 5e6  # bytes per second of a usual connection
_MAKER_NAMES = {
    "sk-ant-": "anthropic", "sk-or-": "openrouter", "gsk_": "groq", "xai-": "xai",
    "AIza": "gemini",
}  # fmt: skip
_KEY_PAGES = {
    "anthropic": "https://platform.claude.com/settings/keys",
    "openai": "https://platform.openai.com/api-keys",
    "gemini": "https://aistudio.google.com/apikey",
    "openrouter": "https://openrouter.ai/settings/keys",
    "groq": "https://console.groq.com/keys",
    "xai": "https://console.x.ai",
    "mistral": "https://console.mistral.ai/api-keys",
    "deepseek": "https://platform.deepseek.com/api_keys",
}
_MAX_MENU_PROVIDERS = 3  # providers in the menu; the next question lists all
_SHOWN_MODELS = 9  # of one server: each has a key to press
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

    `sandboxed` says whether mode `sandbox` can be offered; it may take a moment.
    """

    providers: Sequence[str]
    check_key: Callable[[str, str], Awaitable[None]]
    keep_key: Callable[[str, str], Awaitable[str]]
    servers: Sequence[LocalServer] = ()
    embedded: Sequence[Embedded] = ()
    install: Callable[[str], Awaitable[str]]
    remember: Callable[[str, str], Awaitable[None]]
    sandboxed: Callable[[], bool] = lambda: False
    claude: ClaudeRules | None = None


class _Row(Struct, frozen=True):
    text: str
    about: str
    does: Callable[[], Awaitable[FirstChoice | None]]


def first_run(app: App) -> bool:
    """Ask for a model. True if there is one now."""
    return anyio.run(_first_run, app)


async def _first_run(app: App) -> bool:
    places, options = app.paths, app.settings.terminal
    here = this_terminal(display=options.display, theme=options.theme)
    choice = await choose(_offers(app), *here)
    if choice.what == "tour":
        await give_tour(opening_with(places), *here)
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
        shelf = ModelDirectory(default_directory(os.environ))
        await anyio.to_thread.run_sync(install, find(name), shelf)
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
        sandboxed=lambda: app.workspace.sandbox.confines,
        claude=ClaudeRules.read_from(app.workspace.directory, places.folders),
    )


async def choose(
    offers: FirstRunOffers,
    paper: Printer | None = None,
    reading: TerminalReader | None = None,
) -> FirstChoice:
    """Ask until something is chosen, and set that up."""
    if paper is None or reading is None:
        paper, reading = this_terminal()
    return await _Questions(offers, paper, reading).choose()


class _Questions:
    def __init__(
        self, offers: FirstRunOffers, paper: Printer, reading: TerminalReader
    ) -> None:
        self._offers, self._paper, self._reading = offers, paper, reading

    async def choose(self) -> FirstChoice:
        self._paper.say("Welcome to refold.", "heading")
        self._paper.say("No model is configured yet. Which one do you want to use?")
        choice = await self._pick_row(self._rows()) or FirstChoice("leave")
        if choice.what == "model":
            await self._ask_for_mode()
            await self._ask_for_rules()
        return choice

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
            many = len(server.models)
            about = f"{many} models" if many > 1 else server.models[0].partition("/")[2]
            title = f"{server.label} on this machine"
            rows.append(_Row(title, on_one_line(about), self._server_choice(server)))
        rows += [
            _Row(f"{model.name}, embedded", _about_model(model), self._install(model.name))
            for model in offers.embedded
        ]
        return [
            *rows,
            _Row("a guided tour", "no key, no network, one minute", self._choose_tour),
        ]

    async def _pick_row(self, rows: Sequence[_Row]) -> FirstChoice | None:
        """Let the user pick a row, and carry it out. Return None if the user leaves."""
        keys = "".join(str(n) for n in range(1, len(rows) + 1))
        self._show(rows)
        while True:
            pressed = _stop_at_ctrl_c(await self._reading.choice(_prompt(keys), f"{keys}q"))
            if isinstance(pressed, Key) or pressed == "q":
                return None
            if not pressed:
                self._paper.say(f"Press 1–{len(rows)}, or q to quit.", "dim")
                continue
            try:
                if (choice := await rows[int(pressed) - 1].does()) is not None:
                    return choice
            except RefoldError as error:
                self._paper.say(visible(str(error)), "bad")
            self._show(rows)

    def _show(self, rows: Sequence[_Row]) -> None:
        self._paper.gap()
        wide = max(len(row.text) for row in rows)
        least = max(len(f"  1  {row.text:{wide}}  {row.about}") for row in rows)
        for number, row in enumerate(rows, start=1):
            start: Line = (("strong", f"  {number}  "), ("plain", f"{row.text:{wide}}"))
            if least <= self._paper.room:
                self._paper.line((*start, ("dim", f"  {row.about}")))
            else:  # the description on a line of its own
                self._paper.line(start)
                self._paper.say(f"     {row.about}", "dim")
        if not self._offers.servers:
            self._paper.gap()
            self._paper.say(
                "No Ollama, LM Studio or llama.cpp server answers on this machine.", "dim"
            )
        self._paper.gap()

    async def _set_up_provider(self) -> FirstChoice | None:
        names = self._offers.providers
        self._paper.say(", ".join(names), "dim")
        text = ""
        while True:
            asked: Line = (("plain", "Which provider is the key for? "),)
            answer = _stop_at_ctrl_c(await self._reading.read_line(asked, text))
            if isinstance(answer, Key) or not (text := answer.strip()):
                return None
            try:
                name = catalog.find(text.lower()).name
                if name not in names:
                    raise no_provider(text, names)
            except BadInput as error:
                self._paper.say(visible(str(error)), "bad")
                continue
            return await self._set_up_key(name)

    async def _set_up_key(self, name: str) -> FirstChoice | None:
        if page := _KEY_PAGES.get(name):
            self._paper.say(f"Keys are made at {page}", "dim")
        while True:
            key = await self._read_key(name)
            if not key:
                self._paper.say("No key was given.", "warn")
                return None
            if (answer := await self._check_key(name, key)) is not None:
                return (
                    await self._choose_model(await self._offers.keep_key(name, key))
                    if answer
                    else None
                )

    async def _read_key(self, name: str) -> str:
        """Return a key that looks like one of this provider; "" for none."""
        prompt: Line = (("plain", f"The key for {name} (it is not shown): "),)
        while True:
            key = _stop_at_ctrl_c(await self._reading.secret(prompt))
            if key == "":  # many press Enter after the name
                key = _stop_at_ctrl_c(await self._reading.secret(prompt))
            if isinstance(key, Key) or not (key := key.strip()):
                return ""
            maker = next(
                (p for start, p in _MAKER_NAMES.items() if key.startswith(start)), name
            )
            if problem := key_problem(key):
                self._paper.say(f"This is not a key: {problem}.", "bad")
            elif maker != name:
                self._paper.say(f"This is a key for {maker}. It was not sent.", "bad")
            else:
                return key

    async def _check_key(self, name: str, key: str) -> bool | None:
        """Return True to store the key, None if the user will type another one."""
        while True:
            self._paper.say(f"Checking the key with {name}…", "dim")
            try:
                await self._offers.check_key(name, key)
            except Refused as error:
                self._paper.say(visible(f"{name} does not accept the key: {error}"), "bad")
            except (ProviderError, BadInput) as error:
                self._paper.say(visible(f"The key could not be checked: {error}"), "warn")
            else:
                self._paper.say(f"{name} accepts the key.", "good")
                return True
            match await self._ask_what_now():
                case "c":
                    continue
                case "k":
                    return True
                case "t":
                    return None
                case _:
                    return False

    async def _ask_what_now(self) -> str | Key:
        asked: Line = (
            ("plain", "c check again · k keep it unchecked · t type another · b back "),
            ("person", "› "),
        )
        while not (pressed := _stop_at_ctrl_c(await self._reading.choice(asked, "cktb"))):
            self._paper.say("Press c, k, t or b.", "dim")
        return pressed

    def _server_choice(
        self, server: LocalServer
    ) -> Callable[[], Awaitable[FirstChoice | None]]:
        async def ask() -> FirstChoice | None:
            names = server.models[:_SHOWN_MODELS]
            if len(names) == 1:
                return await self._choose_model(names[0])
            for number, name in enumerate(names, start=1):
                self._paper.line(
                    (("strong", f"  {number}  "), ("plain", on_one_line(name)))
                )
            if left := len(server.models) - len(names):
                self._paper.say(f"     and {left} more; /model chooses them later", "dim")
            keys = "".join(str(n) for n in range(1, len(names) + 1))
            pressed = _stop_at_ctrl_c(
                await self._reading.choice(_prompt(keys, "Esc goes back"), keys)
            )
            if isinstance(pressed, Key) or not pressed:
                return None
            return await self._choose_model(names[int(pressed) - 1])

        return ask

    def _install(self, name: str) -> Callable[[], Awaitable[FirstChoice]]:
        async def install() -> FirstChoice:
            return await self._choose_model(await self._offers.install(name))

        return install

    async def _choose_tour(self) -> FirstChoice:
        return FirstChoice("tour")

    async def _choose_model(self, model: str) -> FirstChoice:
        await self._offers.remember("model", model)
        self._paper.say(
            f"{on_one_line(model)} is now the default model. /model changes it.", "good"
        )
        return FirstChoice("model", model)

    async def _ask_for_mode(self) -> None:
        """Ask for the mode. The choice is a setting like any other."""
        if not await anyio.to_thread.run_sync(self._offers.sandboxed):
            return
        self._paper.gap()
        self._paper.say("What may refold do without asking?")
        self._paper.line((
            ("strong", "  1  "), ("plain", "edit and run commands here"),
            ("dim", "  in a sandbox, without network and keys"),
        ))  # fmt: skip
        self._paper.line((
            ("strong", "  2  "), ("plain", "read only"),
            ("dim", "  ask before every edit and every command that changes something"),
        ))  # fmt: skip
        self._paper.gap()
        asked: Line = (("plain", "Choose 1 or 2 (default 2): "),)
        if _stop_at_ctrl_c(await self._reading.choice(asked, "12")) == "1":
            await self._offers.remember("permission_mode", "sandbox")
            self._paper.say(
                "Mode sandbox is now the default. Shift+Tab changes it.", "good"
            )
        else:
            self._paper.say("refold asks. Shift+Tab changes that.", "good")

    async def _ask_for_rules(self) -> None:
        if not (claude := self._offers.claude):
            return
        self._paper.gap()
        self._paper.say("Claude Code has permission rules for this directory:")
        for row in claude.rule_lines():
            self._paper.say(f"  {row}", "dim")
        asked: Line = (("plain", "Import them? y/N › "),)
        if _stop_at_ctrl_c(await self._reading.choice(asked, "yn")) == "y":
            claude.store_rules()
            self._paper.say("They apply in this directory from now on.", "good")


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


def _prompt(keys: str, way_out: str = "or q to leave") -> Line:
    return (("plain", f"1 to {keys[-1]}, {way_out} "), ("person", "› "))
