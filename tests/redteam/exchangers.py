"""Attacks between a question and its answer: a path of the approved command then leads elsewhere."""

from tests.redteam.house import SECRET, Attack

_PLANTS = {"plain": "plain\n", "notes": "-> plain", ".env": f"K={SECRET}\n"}
_KEYS = {"e/id_ed25519": "plain\n", "d": "-> e"}

EXCHANGERS = (
    Attack(
        name="a link becomes one to a protected file while the question waits",
        plants=_PLANTS,
        calls=["cat notes | tee out"],
        meanwhile="ln -sfn .env notes",
        mode="default",
    ),
    Attack(
        name="a link becomes one to a key while the question waits",
        plants=_PLANTS,
        calls=["cat notes | tee out"],
        meanwhile="ln -sfn {home}/.ssh/id_ed25519 notes",
        mode="default",
    ),
    Attack(
        name="a file becomes a link to a protected file while the question waits",
        plants=_PLANTS,
        calls=["sort plain -o out; cat out"],
        meanwhile="rm plain; ln -s .env plain",
        mode="default",
    ),
    Attack(
        name="a directory becomes one with keys while the question waits",
        plants=_KEYS,
        calls=["cat d/id_ed25519 | tee out"],
        meanwhile="ln -sfn {home}/.ssh d",
        mode="default",
    ),
    Attack(
        name="a written link becomes one to a hook while the question waits",
        before="git init -q",
        plants=_PLANTS,
        calls=["tee notes < plain"],
        meanwhile="ln -sfn .git/hooks/pre-commit notes",
        mode="default",
        reached=[".git/hooks/pre-commit"],
    ),
    Attack(
        name="a link of a background command becomes one to a key while the question waits",
        plants=_PLANTS,
        calls=[
            ("background_run", {"command": "cat notes > out"}),
            "sleep 1",
            "cat out",
        ],
        meanwhile="ln -sfn .env notes",
        mode="default",
    ),
)
