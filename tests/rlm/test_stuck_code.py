"""A model whose code keeps failing in the same way is stopped; one that works is not."""

from collections.abc import Iterable
from pathlib import Path

from refold.engine.policies.stuck import not_stuck
from refold.journal.state.fold import View
from refold.testing.providers import ScriptedProvider
from tests.place.walled import needs_bubblewrap
from tests.rlm.acting_by_code import POLICIES, CodeSession, Leaf, as_code
from tests.rlm.walled_python import workers

STEPS = 12
RULES = (*POLICIES[:2], *not_stuck(), *POLICIES[2:])


def run_cells(place: Path, answers: Iterable[str]) -> View:
    needs_bubblewrap()
    with workers(place) as real:
        model = ScriptedProvider(*answers, as_code("FINAL(1)"))
        return CodeSession(model, Leaf(str), workers=real, policies=RULES).run()


def test_a_turn_that_repeats_the_same_failing_cell_is_stopped(tmp_path: Path) -> None:
    cell = (
        "class P: pass\ndef half(p): return p / 2\n"
        "import time; start = time.perf_counter()\n"
        "print(P(), f'{time.perf_counter() - start:.6f} s')\nhalf(\nP())"
    )

    view = run_cells(tmp_path, (as_code(f"{cell}  # {'again ' * n}") for n in range(STEPS)))

    assert (view.turn.outcome, view.turn.steps) == ("stuck", 4)
    assert view.turn.reason == "python failed 4 times with the same error"


def test_a_turn_that_repeats_a_syntax_error_is_stopped(tmp_path: Path) -> None:
    view = run_cells(tmp_path, [as_code("x = 1", "x = (1,")] * STEPS)

    assert (view.turn.outcome, view.turn.steps) == ("stuck", 4)


def test_different_errors_and_repeated_working_cells_do_not_stop_a_turn(
    tmp_path: Path,
) -> None:
    mended = [as_code(f"data = {{'key {n}': 1}}\ndata['key']['{n}']") for n in range(STEPS)]
    batches = [as_code("n = globals().get('n', 0) + 1\nn")] * STEPS

    view = run_cells(tmp_path, [*mended, *batches])

    assert (view.turn.outcome, view.turn.steps) == ("final", 2 * STEPS + 1)
