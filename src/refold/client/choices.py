"""Lists what a user can choose for a session: models, agents, and stored settings.

Each list is read when it is requested. The choice itself is an order to the session.
`offers` returns the lists as documents, for clients that cannot import refold.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from refold.agents.profile import Profile, preset_notice
from refold.app.app import App
from refold.client.launch import Launch
from refold.config.settings import Settings
from refold.errors import BadInput
from refold.session.session import Session as Engine
from refold.views.model_picker import ModelOffer

if TYPE_CHECKING:
    from refold.app.model_offers import ModelOffers

Offer = Mapping[str, object]
OFFER_KINDS = ("tools", "skills", "commands", "agents", "presets", "models")
_READ_SECONDS = 0.5  # for reading new entries of the sessions
_MAX_SESSIONS = 50  # sessions whose models are offered
_MAX_RECENT = 4


class ModelChoices:
    """The models that a user can choose."""

    def __init__(self, app: App, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    def names(self) -> Sequence[str]:
        """Return the names of models in the settings: roles and the user's own names.

        Models that are not among them can be chosen, too.
        """
        return self._app.models.names()

    async def list_offers(self) -> Sequence[ModelOffer]:
        """Return the models of every provider with a key.

        Roles and the user's own names are first, then recently used models, then all
        others.
        """
        return await anyio.to_thread.run_sync(self._list_offers)

    def _list_offers(self) -> Sequence[ModelOffer]:
        """Return the offers of `list_offers`, with the current model first."""
        offers = self._offers
        recent = self._recent_models()
        current = self._app.model_of(self._engine.view)
        names = [*recent, *offers.names()]
        if current:
            names.insert(0, current)
        ranked = list[tuple[int, ModelOffer]]()
        for name in dict.fromkeys(names):  # each once
            window, input_price, output_price = offers.figures(name)
            notes = offers.notes(name)  # its roles, and its names in the settings
            if name == current:
                rank = 0
            elif notes:
                rank = 1
            elif name in recent:
                rank = 2
            else:
                rank = 3
            if name in recent:
                notes = (*notes, "recent")
            offer = ModelOffer(name, window, input_price, output_price, notes)
            ranked.append((rank, offer))
        return [offer for _, offer in sorted(ranked, key=lambda pair: pair[0])]

    @property
    def _offers(self) -> "ModelOffers":
        from refold.app.model_offers import ModelOffers

        return ModelOffers(self._app.models, self._app.settings, self._app.environ)

    def _recent_models(self) -> Sequence[str]:
        """Return the models of the newest sessions of all directories that can be used now."""
        if not self._app.options.keep:
            return ()
        from refold.journal.catalogue.card_filter import CardFilter

        catalogue = self._app.home.catalogue()
        cards = catalogue.newest_first(CardFilter(everything=True), seconds=_READ_SECONDS)
        newest = islice(cards, _MAX_SESSIONS)
        # Each once, in the order of the sessions.
        names = dict.fromkeys(card.about.model or card.model for card in newest)
        usable = [name for name in names if name and self._is_usable(name)]
        return usable[:_MAX_RECENT]

    def _is_usable(self, name: str) -> bool:
        try:
            self._app.models.check(name)
        except BadInput:
            return False
        return not name.startswith("script/")  # recorded responses, which tests play back

    def name_warning(self, name: str) -> str:
        """Return a warning if no model of this name is known, otherwise ""."""
        return self._offers.unknown_model_warning(name)

    async def check(self, name: str) -> str:
        """Return the full name of the model. Raises `BadInput` if it cannot be used."""
        # A key may have to be fetched from a keyring.
        return await anyio.to_thread.run_sync(self._app.models.check, name)


class AgentChoices:
    """The agents and presets that can be chosen here."""

    def __init__(self, app: App, engine: Engine) -> None:
        self._app = app
        self._engine = engine

    @property
    def preset(self) -> str:
        """The name of the preset of the agent `main`."""
        return self._engine.view.session.preset or self._app.settings.preset

    @property
    def problems(self) -> Sequence[str]:
        """Return one sentence for each invalid agent file, with the reason."""
        return self._app.agents.problems

    def profiles(self) -> Sequence[Profile]:
        """Return the agents that `Session.set_agent` accepts."""
        return self._app.agents.profiles_for("main")

    def presets(self) -> Sequence[tuple[str, str]]:
        """Return the name and the description of each preset."""
        presets, _ = self._app.system_prompt.presets()
        return [(preset.name, preset.description) for preset in presets]

    def find(self, name: str) -> Profile:
        """Return the agent of that name. Raises `BadInput` for an unknown name."""
        return self._app.agents.find(name, "main")

    def preset_notice(self, agent: Profile) -> str:
        """Return a notice if the agent's own prompt replaces the chosen preset; otherwise
        "".
        """
        # The default preset was not chosen by the user.
        preset = "" if self.preset == Settings().preset else self.preset
        return preset_notice(agent, preset)


class Configuration:
    """The settings as they are stored. `Session.settings` has those that apply in the
    session.
    """

    def __init__(self, app: App, flags: Mapping[str, object]) -> None:
        self._app = app
        self._flags = flags

    @property
    def history_file(self) -> Path:
        """The file in which lines that were typed at the prompt are stored."""
        return self._app.paths.state / "history"

    def mask(self, text: str) -> str:
        """Mask whatever looks like a secret in typed text, so that it may be stored."""
        from refold.session.redactor import Redactor

        return Redactor().mask_event(text)

    async def lines(self, keys: Sequence[str] = ()) -> Sequence[str]:
        """Return the settings with these keys, or all, each with its value and source."""
        from refold.config.settings_report import report_lines

        app = self._app
        return await report_lines(
            Path(app.directory), app.paths, app.environ, self._flags, tuple(keys)
        )

    def remember(self, key: str, value: str) -> None:
        """Make `value` the default of the setting `key` in all later sessions.

        Raises `BadInput` if the key or the value is invalid.
        """
        from refold.config.set_setting import remember

        remember(self._app.paths, key, value)


def offers(launch: Launch, kind: str) -> Sequence[Offer]:
    """Return the offers of `kind`, one of `OFFER_KINDS`. Reads the disk: call it in a
    thread.
    """
    kinds: Mapping[str, Callable[[Launch], Sequence[Offer]]] = {
        "tools": _tools, "skills": _skills, "commands": _commands, "agents": _agents,
        "presets": _presets, "models": _models,
    }  # fmt: skip
    return kinds[kind](launch)


def _tools(launch: Launch) -> Sequence[Offer]:
    return [
        {"name": tool.name, "description": tool.description, "effect": tool.effect.value}
        for tool in launch.app.all_tools
    ]


def _skills(launch: Launch) -> Sequence[Offer]:
    skills = launch.app.skills.scan.skills if launch.app.settings.skills else ()
    return [{"name": skill.name, "description": skill.description} for skill in skills]


def _commands(launch: Launch) -> Sequence[Offer]:
    shortcuts = launch.app.shortcuts(launch.commands()).infos()
    return [
        {"name": shortcut.name, "usage": shortcut.usage, "description": shortcut.about}
        for shortcut in shortcuts
    ]


def _agents(launch: Launch) -> Sequence[Offer]:
    agents = launch.app.agents.profiles_for("main")
    return [{"name": agent.name, "description": agent.description} for agent in agents]


def _presets(launch: Launch) -> Sequence[Offer]:
    presets, _ = launch.app.system_prompt.presets()
    return [{"name": preset.name, "description": preset.description} for preset in presets]


def _models(launch: Launch) -> Sequence[Offer]:
    models = launch.app.models
    default = models.default()
    return [{"name": name, "default": name == default} for name in models.names()]
