"""The environment of a test with a fake API that takes a key."""

from refold.declared.parts import settings as agent


def variables() -> dict[str, str]:
    """A key; and no proxy may stand between us and the fake."""
    return {"no_proxy": "*", agent.API_KEY_VARIABLE: "key"}
