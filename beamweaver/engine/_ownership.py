"""Taking up what a dead owner left: its deaths are counted, and too many set the thread aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from beamweaver.engine._callers import Callers
from beamweaver.engine.calls import UNFINISHED, Decision
from beamweaver.events import ThreadQuarantined, ThreadTakenUp

if TYPE_CHECKING:
    from beamweaver.checkpoint.records import RunRow

__all__ = ["Ownership"]


class Ownership(Callers):
    """The side of a machine that counts the owners of a run."""

    def check_fits(self, decision: Decision) -> None:
        """Judge what is to be done with a thread whose open step may be one that cannot go on here.

        Raises:
            GraphChanged: It is one, and no new run takes its place.
        """
        if self.unfit is not None and decision not in (Decision.RESTART, Decision.RECORDED):
            raise self.unfit.with_traceback(None)

    def take_up(self) -> None:
        """Go on with a run whose owner is gone; the record counts the owner's death first."""
        run = msgspec.structs.replace(self.state.run, **self.ownership())
        if self.one_death_too_many():
            self._quarantine(
                f"the process died {run.deaths} times in {self._where()} without a commit", run
            )
        else:
            self.commit(self.taken_up, row=self.new_row("running", run))

    def taken_up(self) -> None:
        """The run goes on here, durably."""
        run = self.state.run
        if self.env.publishing:
            self.publish(
                ThreadTakenUp(
                    thread_id=self.state.thread_id, run_id=run.names[0], deaths=run.deaths
                )
            )
        self.activate()

    def ownership(self) -> dict[str, Any]:
        """What becomes of the run's owners when this one goes on with it: a death more, or none."""
        state, run, epoch = self.state, self.state.run, self.env.epoch
        if self.active or state.status not in UNFINISHED:
            return {}
        rests = state.status in ("drained", "sleeping")
        died = not rests and max(run.claimed_epoch, run.taken_up_epoch) < epoch
        deaths = run.deaths if state.progress_seq <= run.deaths_seq else 0
        return {
            "taken_up_epoch": epoch,
            "deaths": deaths + died,
            "deaths_seq": state.seq,
        }

    def one_death_too_many(self) -> bool:
        return bool(self.ownership().get("deaths", 0) > self.env.limits.owner_deaths)

    def _quarantine(self, reason: str, run: RunRow) -> None:
        """Set the thread aside: calls are refused until it is released."""
        self.commit(lambda: self._quarantined(reason), row=self.new_row("quarantined", run, reason))

    def _quarantined(self, reason: str) -> None:
        if self.env.publishing:
            self.publish(ThreadQuarantined(thread_id=self.state.thread_id, reason=reason))
        self.run_stopped()

    def _where(self) -> str:
        step = self.state.step
        nodes = dict.fromkeys(task.node for task in step.tasks if task.result is None)
        return f"step {step.number} (nodes {', '.join(nodes) or 'none'})"
