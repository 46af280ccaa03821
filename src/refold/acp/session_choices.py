"""What a user can choose for a session in an editor: its mode, model, and effort.

The mode is sent twice, as a mode and as a configuration option, because an editor may
support only one of the two.
"""

from collections.abc import Sequence
from typing import get_args

from acp.schema import (
    SessionConfigOptionBoolean,
    SessionConfigOptionSelect,
    SessionConfigSelectOption,
    SessionMode,
    SessionModeState,
)

from refold.client.session import Session
from refold.errors import BadInput
from refold.values.modes import MODE_MEANINGS, Effort

MODE, MODEL, EFFORT = "mode", "model", "effort"
_PROVIDER_DEFAULT = "default"  # represents the effort "", for editors that need a value


def modes(session: Session) -> SessionModeState:
    return SessionModeState(
        current_mode_id=session.mode,
        available_modes=[
            SessionMode(id=mode, name=mode, description=about)
            for mode, about in MODE_MEANINGS.items()
        ],
    )


def options(
    session: Session,
) -> list[SessionConfigOptionSelect | SessionConfigOptionBoolean]:
    """Return what the user can choose for the session, with the present values."""
    rows = list[SessionConfigOptionSelect | SessionConfigOptionBoolean]()
    mode_row = SessionConfigOptionSelect(
        type="select", id=MODE, name="Permission mode", category="mode",
        current_value=session.mode,
        options=[
            SessionConfigSelectOption(value=mode, name=mode, description=about)
            for mode, about in MODE_MEANINGS.items()
        ],
    )  # fmt: skip
    rows.append(mode_row)
    # The present model is first. "": no model can be used.
    names = [name for name in (session.model, *session.models.names()) if name]
    if names:
        model_row = SessionConfigOptionSelect(
            type="select", id=MODEL, name="Model", category="model",
            current_value=session.model, options=_to_options(list(dict.fromkeys(names))),
        )  # fmt: skip
        rows.append(model_row)
    efforts = [effort or _PROVIDER_DEFAULT for effort in get_args(Effort)]
    effort_row = SessionConfigOptionSelect(
        type="select", id=EFFORT, name="Effort", category="thought_level",
        current_value=session.effort or _PROVIDER_DEFAULT, options=_to_options(efforts),
    )  # fmt: skip
    rows.append(effort_row)
    return rows


async def choose(session: Session, option: str, value: str | bool) -> None:
    """Apply a choice of the user: `value` for the option with the id `option`.

    Raises `BadInput` if the value is not available.
    """
    from refold.client.protocol import SetEffort, SetMode, SetModel

    efforts: dict[str, Effort] = {
        item or _PROVIDER_DEFAULT: item for item in get_args(Effort)
    }
    match option, value:
        case "mode", str():
            await session.send(SetMode(value))
        case "model", str():
            await session.send(SetModel(await session.models.check(value)))
        case "effort", str() if value in efforts:
            await session.send(SetEffort(efforts[value]))
        case "effort", _:
            raise BadInput(f"{value!r} is not an effort: {', '.join(efforts)}")
        case _:
            raise BadInput(f"there is no option {option!r}: {MODE}, {MODEL}, {EFFORT}")


def _to_options(values: Sequence[str]) -> list[SessionConfigSelectOption]:
    return [SessionConfigSelectOption(value=value, name=value) for value in values]
