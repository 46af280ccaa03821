"""Attacks of each family on a workspace at the end of a pipe: the same must not happen there.

The pipe leads to a shell of this machine, so that harm is seen as for a workspace here. All attacks
are made by hand:

    python -m tests.redteam.test_attacks_elsewhere
"""

import os
import tempfile
from pathlib import Path
from traceback import format_exception_only

import pytest
from msgspec.structs import replace

from tests.place.walled import home_on_disk
from tests.redteam.house import AttackHome
from tests.redteam.test_file_tool_attacks import ATTACKS, MODES
from tests.redteam.test_repository_attacks import ALL

_OF_EACH_FAMILY = (
    "looks in default: cat l*k",
    "denied: cat < secret.txt",
    "programs by a link from elsewhere",
    "a commondir that hides modules",
    "a bare repository by the file tools",
    "a pointer to what the file tools then make",
    "a link becomes one to a protected file while the question waits",
    "ways up",
)
_WITH_FILE_TOOLS = tuple(replace(attack, mode=mode) for attack in ATTACKS for mode in MODES)
_BY_NAME = {attack.name: attack for attack in (*ALL, *_WITH_FILE_TOOLS)}


@pytest.mark.peer
@pytest.mark.parametrize("name", _OF_EACH_FAMILY)
def test_no_attack_does_harm_in_a_workspace_elsewhere(
    attack_home_elsewhere: AttackHome, name: str
) -> None:
    result = attack_home_elsewhere.attack(_BY_NAME[name])

    assert result.harm == (), result.heard


def main() -> None:
    harmless = 0
    for attack in (*ALL, *_WITH_FILE_TOOLS):
        with home_on_disk() as home, tempfile.TemporaryDirectory() as data:
            try:
                harm = (
                    AttackHome(home, Path(data, "refold"), elsewhere=True)
                    .attack(attack)
                    .harm
                )
            except Exception as error:  # one that cannot be made must not hide the others
                harm = tuple(format_exception_only(error))
        harmless += not harm
        if harm:
            print(f"{attack.name}: {', '.join(harm)}", flush=True)
    print(f"{harmless} attacks did no harm")


if __name__ == "__main__":
    os.environ.pop("REFOLD_HOME", None)
    main()
