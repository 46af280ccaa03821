"""The first run: if no model is set up, ask which one to use, and set it up.

`choose` only asks; how a key is stored and a model is downloaded is passed in as `Offers`.
"""

import os
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

import anyio
from msgspec import Struct

from refold.app.models import SMALL, ollama_models
from refold.cli.local import install
from refold.cli.tour import give_tour, opening_with
from refold.config.credentials import store
from refold.config.paths import Paths
from refold.config.set_setting import remember
from refold.config.settings import Terminal
from refold.errors import RefoldError
from refold.provider import catalog
from refold.provider.local.models import MODELS, Shelf, default_directory, find
from refold.terminal.input.reader import Key, TerminalReader
from refold.terminal.screen.printer import Printer
from refold.terminal.this_terminal import this_terminal
from refold.views.escape import on_one_line, visible
from refold.views.number_format import duration
from refold.views.styled import Line

_SPEED = 5e6  # bytes per second of a usual connection
_MAKERS = {
    "sk-ant-": "anthropic", "sk-or-": "openrouter", "gsk_": "groq", "xai-": "xai",
    "AIza": "gemini", "sk-": "openai",
}  # fmt: skip
_NAMED = 3  # providers in the menu; the question for a key lists all


class ModelChoice(Struct, frozen=True):
    """`model` is the full name, provider/model, of what was chosen."""

    what: Literal["model", "tour", "leave"]
    model: str = ""


class Embedded(Struct, frozen=True):
    """A model that can be downloaded and runs on this machine's CPU."""

    name: str
    size: int  # bytes
    about: str = ""


class Offers(Struct, frozen=True, kw_only=True):
    """What can be chosen, and the functions that set it up.

    `keep_key(provider, key)` stores a key and returns the model to use with it.
    `install(name)` downloads a model, shows the progress and returns its full name.
    `remember(model)` makes it the default. All of them may raise `RefoldError`; then the
    error is shown, and the question asked again. `ollama` has full names.
    """

    providers: Sequence[str]
    keep_key: Callable[[str, str], Awaitable[str]]
    ollama: Sequence[str] = ()
    embedded: Sequence[Embedded] = ()
    install: Callable[[str], Awaitable[str]]
    remember: Callable[[str], Awaitable[None]]


class _Row(Struct, frozen=True):
    text: str
    about: str
    does: Callable[[], Awaitable[ModelChoice | None]]


def first_run(places: Paths, seen: Terminal) -> bool:
    """Ask for a model. True if there is one now."""
    return anyio.run(_first_run, places, seen)


async def _first_run(places: Paths, seen: Terminal) -> bool:
    keyed = [spec for spec in catalog.providers() if spec.key_env and spec.model]

    async def keep_key(name: str, key: str) -> str:
        spec = catalog.find(name)
        store(places.credentials, spec.name, key)
        return f"{spec.name}/{spec.model}"

    async def fetch(name: str) -> str:
        shelf = Shelf(default_directory(os.environ))
        await anyio.to_thread.run_sync(install, find(name), shelf)
        return SMALL + name

    async def keep_model(model: str) -> None:
        remember(places, "model", model)

    choice = await choose(
        Offers(
            providers=[spec.name for spec in keyed],
            keep_key=keep_key,
            ollama=ollama_models(os.environ),
            embedded=[Embedded(each.name, each.size) for each in MODELS],
            install=fetch,
            remember=keep_model,
        ),
        *(here := this_terminal(display=seen.display, theme=seen.theme)),
    )
    if choice.what == "tour":
        await give_tour(opening_with(places), *here)
    return choice.what == "model"


async def choose(
    offers: Offers, paper: Printer | None = None, reading: TerminalReader | None = None
) -> ModelChoice:
    """Ask until something is chosen, and set that up."""
    if paper is None or reading is None:
        paper, reading = this_terminal()
    return await _ModelMenu(offers, paper, reading).choose()


class _ModelMenu:
    def __init__(self, offers: Offers, paper: Printer, reading: TerminalReader) -> None:
        self._offers, self._paper, self._reading = offers, paper, reading

    async def choose(self) -> ModelChoice:
        rows = self._rows()
        keys = "".join(str(n) for n in range(1, len(rows) + 1))
        self._paper.say("Welcome to refold.", "heading")
        self._paper.say("No model is configured yet. Which one do you want to use?")
        self._show(rows)
        while True:
            pressed = _or_stop(await self._reading.choice(_prompt(keys), f"{keys}q"))
            if isinstance(pressed, Key) or pressed == "q":
                return ModelChoice("leave")
            if not pressed:
                self._paper.say(f"Press a number from 1 to {len(rows)}, or q.", "dim")
                continue
            try:
                if (choice := await rows[int(pressed) - 1].does()) is not None:
                    return choice
            except RefoldError as error:
                self._paper.say(visible(str(error)), "bad")
            self._show(rows)

    def _rows(self) -> list[_Row]:
        offers = self._offers
        more = len(offers.providers) - _NAMED
        several = ", ".join(offers.providers[:_NAMED])
        several += f" and {more} more" if more > 0 else ""
        rows = [_Row("an API key", f"{several}; only you can read it", self._key)]
        if offers.ollama:
            many = len(offers.ollama)
            about = f"{many} models here" if many > 1 else offers.ollama[0]
            rows.append(_Row("Ollama on this machine", on_one_line(about), self._ollama))
        rows += [
            _Row(f"{found.name}, embedded", _embedded(found), self._install(found.name))
            for found in offers.embedded
        ]
        return [*rows, _Row("a guided tour", "no key, no network, one minute", self._tour)]

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
        if not self._offers.ollama:
            self._paper.gap()
            self._paper.say("Ollama does not answer on this machine.", "dim")
        self._paper.gap()

    async def _key(self) -> ModelChoice | None:
        prompt: Line = (("plain", "The key (it is not shown): "),)
        key = await self._reading.secret(prompt)
        if key == "":  # many press Enter after the number
            key = await self._reading.secret(prompt)
        key = _or_stop(key)
        if isinstance(key, Key) or not key.strip():
            self._paper.say("No key was given.", "warn")
            return None
        key = key.strip()
        provider = next((p for start, p in _MAKERS.items() if key.startswith(start)), "")
        if provider not in self._offers.providers:
            asked = f"Which provider is it for? ({', '.join(self._offers.providers)}) "
            said = await self._reading.brief((("plain", asked),))
            provider = said.strip().lower() if isinstance(said, str) else ""
        if provider not in self._offers.providers:
            self._paper.say("There is no such provider, so the key was not stored.", "warn")
            return None
        return await self._chosen(await self._offers.keep_key(provider, key))

    async def _ollama(self) -> ModelChoice | None:
        names = self._offers.ollama[:9]
        if len(names) == 1:
            return await self._chosen(names[0])
        for number, name in enumerate(names, start=1):
            self._paper.line((("strong", f"  {number}  "), ("plain", on_one_line(name))))
        keys = "".join(str(n) for n in range(1, len(names) + 1))
        pressed = await self._reading.choice(_prompt(keys), keys)
        if isinstance(pressed, Key) or not pressed:
            return None
        return await self._chosen(names[int(pressed) - 1])

    def _install(self, name: str) -> Callable[[], Awaitable[ModelChoice]]:
        async def install() -> ModelChoice:
            return await self._chosen(await self._offers.install(name))

        return install

    async def _tour(self) -> ModelChoice:
        return ModelChoice("tour")

    async def _chosen(self, model: str) -> ModelChoice:
        await self._offers.remember(model)
        self._paper.say(
            f"{on_one_line(model)} is now the default model. /model changes it.", "good"
        )
        return ModelChoice("model", model)


def _embedded(found: Embedded) -> str:
    minutes = duration(60 * max(1, round(found.size / _SPEED / 60))).removesuffix(" 00 s")
    about = f"; {found.about}" if found.about else ""
    return f"{found.size / 1e9:.1f} GB to fetch, about {minutes}{about}"


def _or_stop(answer: str | Key) -> str | Key:
    """Ctrl+C ends the program, whether it comes as a key or as a signal."""
    if answer is Key.CTRL_C:
        raise KeyboardInterrupt
    return answer


def _prompt(keys: str) -> Line:
    return (("plain", f"1 to {keys[-1]}, or q to leave "), ("person", "› "))
