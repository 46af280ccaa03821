"""The workflow of a session in Temporal: one activity runs the session while it has wakes.

The history of the workflow contains only ids: that of the session, and one for each wake.
The activity (`temporal_runner`) runs the turns, and the journal records what happens in
them.
"""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy

WORKFLOW_NAME, ACTIVITY_NAME, WAKE_SIGNAL = "refold-session", "refold-run-session", "wake"
_MAX_ACTIVITY_TIME = timedelta(days=365)  # the heartbeat says whether it runs
# A failed attempt is one of a worker that is ending: another worker is there now or soon.
_RETRY_POLICY = RetryPolicy(
    initial_interval=timedelta(milliseconds=200), backoff_coefficient=1
)


@workflow.defn(name=WORKFLOW_NAME)
class SessionWorkflow:
    """Runs the activity of one session until it has taken every wake."""

    def __init__(self) -> None:
        self._wakes = dict[str, None]()

    @workflow.signal(name=WAKE_SIGNAL)
    def wake(self, id_: str) -> None:
        self._wakes[id_] = None

    @workflow.run
    async def run(self, session: str, dead_seconds: float, wakes: list[str]) -> None:
        """Run the activity until no wake is left; `wakes` are the wakes that an earlier run
        left.
        """
        self._wakes |= dict.fromkeys(wakes)
        while self._wakes:
            self._wakes.clear()
            taken: list[str] = await workflow.execute_activity(
                ACTIVITY_NAME,
                session,
                result_type=list[str],
                heartbeat_timeout=timedelta(seconds=dead_seconds),
                start_to_close_timeout=_MAX_ACTIVITY_TIME,
                retry_policy=_RETRY_POLICY,
            )
            for id_ in taken:  # wakes that the activity took while it ran
                self._wakes.pop(id_, None)
            if workflow.info().is_continue_as_new_suggested():
                workflow.continue_as_new(args=[session, dead_seconds, list(self._wakes)])
