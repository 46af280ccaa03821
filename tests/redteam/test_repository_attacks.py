"""Attacks by a hostile repository, or by a model that it has misled: each must fail.

The attacks are data: what they do is in `readers`, `breakers`, `starters`, `kernel`,
`planters` and `exchangers`. First it is tested that a successful attack would be noticed.
"""

import re
from collections import Counter
from collections.abc import Iterator

import pytest
from _pytest.mark.structures import ParameterSet
from msgspec.structs import replace

from tests.redteam.breakers import BREAKERS
from tests.redteam.exchangers import EXCHANGERS
from tests.redteam.house import SECRET, Attack, AttackHome
from tests.redteam.kernel import KERNEL
from tests.redteam.planters import PLANTERS
from tests.redteam.readers import READERS
from tests.redteam.starters import STARTERS

ALL = [*READERS, *BREAKERS, *STARTERS, *KERNEL, *PLANTERS, *EXCHANGERS]
QUICK_OF_A_FAMILY = 2
_OPEN = {"sandbox.profile": "off"}


@pytest.mark.parametrize(
    ("command", "harm"),
    [
        ("cat {other}/.env | cat", f"read: {SECRET}"),
        ("echo x >> {home}/plain.txt", "changed: "),
        ("mkdir {other}/new", "changed: "),
        ("echo x > {home}/.ssh/new", "changed: "),
        ("printf 'R%sN' 4", "ran: "),
        ("touch made", "made: made"),
        ("touch tool; chmod u+s tool", "rights of the user: "),
        (
            "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('{home}/plain.sock')\"",
            "connected to plain.sock",
        ),
    ],
)
def test_the_harm_check_reports_every_kind_of_harm(
    attack_home: AttackHome, command: str, harm: str
) -> None:
    script = Attack(
        name="", plants={"go": command}, calls=["bash go"], settings=_OPEN, reached=["made"]
    )

    harm_done = attack_home.attack(script).harm

    assert any(text.startswith(harm) for text in harm_done), harm_done


def test_at_least_sixty_attacks_have_unique_names() -> None:
    assert len(ALL) >= 60
    assert len({attack.name for attack in ALL}) == len(ALL)


def attack_parameters() -> Iterator[ParameterSet]:
    """Yield all attacks; of a family of similar ones `make test` tries the first two."""
    sizes = Counter[str]()
    for attack in ALL:
        family = re.sub(
            r"( (\d|in|by|of|that|to|where|with|through|behind)\b|:).*", "", attack.name
        )
        sizes[family] += 1
        marks = [pytest.mark.slow] if sizes[family] > QUICK_OF_A_FAMILY else []
        yield pytest.param(attack, id=attack.name, marks=marks)


@pytest.mark.parametrize("attack", [*attack_parameters()])
def test_no_repository_attack_does_harm(attack_home: AttackHome, attack: Attack) -> None:
    result = attack_home.attack(attack)

    assert result.harm == (), result.heard


@pytest.mark.slow
@pytest.mark.parametrize("attack", ALL, ids=lambda attack: attack.name)
def test_no_repository_attack_does_harm_in_mode_sandbox(
    attack_home: AttackHome, attack: Attack
) -> None:
    """In this mode programs of the repository may run and write in it. They reach nothing
    else.
    """
    result = attack_home.attack(replace(attack, mode="sandbox"))

    inside = ("ran: ",) if attack.mode == "bypass" else ("ran: ", "made: ")
    assert [text for text in result.harm if not text.startswith(inside)] == [], result.heard
