"""What a session has used: tokens, cost, call ids, and the keys of messages.

A client sends a key with a message, so that the message is not recorded twice.

A rewind does not change these values.

A fork starts at zero, because the original session has counted what the fork copies.
"""

from msgspec import Struct
from msgspec.structs import replace

from refold.journal.events.kinds import (
    ChildEnded,
    Entry,
    Forked,
    Imported,
    ModelAnswered,
    ModelFailed,
    Said,
    Settled,
    VariableInjected,
)
from refold.values.usage import Spent, Usage

EVENT_KINDS = (
    ModelAnswered, ModelFailed, Said, Settled, ChildEnded, Forked, VariableInjected, Imported,
)  # fmt: skip
_KEYS_REMEMBERED = 256
_USAGE_EVENTS = (ModelAnswered, ModelFailed, Settled)


class Account(Struct, frozen=True):
    spent: Spent = Spent()
    children_spent: Spent = Spent()  # by subagents that have ended, on all levels
    by_model: tuple[tuple[str, Spent], ...] = ()  # in order of first use
    last_usage: Usage = Usage()  # of the latest response: the context usage
    calls: int = 0  # the number of the last call id
    client_keys: tuple[str, ...] = ()  # the newest ones
    first_estimated: int = 0  # the seq of the first event with estimated usage
    injected: tuple[tuple[str, str], ...] = ()  # initial Python variables: name and blob


def apply(account: Account, entry: Entry) -> Account:
    """Return the account after this entry. An event of another kind changes nothing."""
    event = entry.event
    if isinstance(event, _USAGE_EVENTS) and event.usage and event.usage.estimated:
        account = replace(account, first_estimated=account.first_estimated or entry.seq)
    match event:
        case ModelAnswered() as answer:
            return replace(
                _add_spending(account, answer.model, answer.usage, answer.cost),
                # A stopped response has no usage.
                last_usage=account.last_usage if answer.partial else answer.usage,
                calls=account.calls + len(answer.message.calls),
            )
        case ModelFailed(usage=Usage() as usage, model=model, cost=cost):
            return _add_spending(account, model, usage, cost)
        case Settled(usage=Usage() as usage, model=model, cost=cost):
            return _add_spending(account, model, usage, cost)
        case ChildEnded(spent=spent):
            return replace(account, children_spent=account.children_spent + spent)
        case VariableInjected(name, blob):
            return replace(account, injected=(*account.injected, (name, blob)))
        case Forked() | Imported():
            return _after_copy(account, event)
        case Said(client_key=key) if key:
            keys = (*account.client_keys, key)
            return replace(account, client_keys=keys[-_KEYS_REMEMBERED:])
        case _:
            return account


def _after_copy(account: Account, event: Forked | Imported) -> Account:
    """Return the account after an import, or that of a fork, which has spent nothing itself."""
    if isinstance(event, Imported):  # the blobs of its variables were not imported
        return replace(account, injected=())
    # The source session has paid for the copied part.
    return replace(account, spent=Spent(), children_spent=Spent(), by_model=())


def _add_spending(
    account: Account, model: str, usage: Usage, cost: float | None
) -> Account:
    """Add the usage of one model call. A `cost` of None means that its price is unknown."""
    models = dict(account.by_model)
    models[model] = models.get(model, Spent()).plus(usage, cost)
    spent = account.spent.plus(usage, cost)
    return replace(account, spent=spent, by_model=tuple(models.items()))
