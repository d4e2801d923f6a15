"""Brings what a store knows of an agent's series to the budget, and takes back what is new.

A batch waits for the store only when the agent is not in memory, and when some of its series are
over the budget while another process may have told the store of them; both at most
`answer_seconds`.
Everything that the budget learns goes to the store behind the batches, every `tell_seconds`.

While the store gives no answer, agents in memory are judged by what is in memory, and agents that
are not begin as many series as a budget remembers of one: none is refused what it may have had.
"""

from __future__ import annotations

import logging
from collections import OrderedDict

import anyio

from ahcollector._trouble import Trouble
from ahcollector.budget.base import BudgetStore
from ahcollector.budget.series_budget import SeriesBudget
from ahcollector.clock import AsyncClock
from ahcollector.errors import BudgetStoreError
from ahcollector.metrics import INGEST_BUDGET_FAILURES, Metrics, NullMetrics
from ahcollector.registry._flight import SingleFlight

__all__ = ["BudgetKeeper"]

_log = logging.getLogger("ahcollector.budget")


class BudgetKeeper:
    """Keeps a budget of new series in a store.

    Processes that share a store share each agent's budget to within what they begin between two
    tellings: N processes together admit at most the budget of the hour and, for each but one, what
    was left of it when they were last told. A series that another process began is known here when
    the store was told of it; nobody is refused it for longer than `ask_again_seconds`.

    Args:
        budget: What is kept; it tells its changes from now on.
        store: Where.
        clock: Time.
        metrics: Where failures of the store are counted.
        answer_seconds: How long a batch waits for the store.
        tell_seconds: How often the store is told.
        ask_again_seconds: How long the store is not asked after it failed, and how long not about
            an agent that would be refused series.
        stop_seconds: How long the last telling may take.
        agents_at_once: Agents in one call of the store.
        agents_max: Agents of whom it is remembered when the store was asked, and agents that wait
            to be forgotten there.
    """

    def __init__(
        self,
        *,
        budget: SeriesBudget,
        store: BudgetStore,
        clock: AsyncClock,
        metrics: Metrics | None = None,
        answer_seconds: float = 0.5,
        tell_seconds: float = 5.0,
        ask_again_seconds: float = 5.0,
        stop_seconds: float = 5.0,
        agents_at_once: int = 100,
        agents_max: int = 10_000,
    ) -> None:
        self._budget = budget
        self._store = store
        self._clock = clock
        self._metrics = metrics if metrics is not None else NullMetrics()
        self._answer_seconds = answer_seconds
        self._tell_seconds = tell_seconds
        self._ask_again_seconds = ask_again_seconds
        self._stop_seconds = stop_seconds
        self._agents_at_once = agents_at_once
        self._agents_max = agents_max
        self._flights: SingleFlight[str, None] = SingleFlight()
        self._asked: OrderedDict[str, float] = OrderedDict()
        self._gone: OrderedDict[str, None] = OrderedDict()
        self._failed_at: float | None = None
        self._trouble = Trouble(
            _log, "known series cannot be kept", "known series are kept again", level=logging.ERROR
        )
        budget.keep_changes()

    async def prepare(self, agent_id: str) -> None:
        """Have in memory what the store knows of an agent.

        Returns in any case: when the store gives no answer, the budget decides without it.
        """
        if not self._budget.is_sure_of(agent_id):
            await self._flights.do(agent_id, lambda: self._ask(agent_id))

    async def ask_again(self, agent_id: str) -> bool:
        """Return whether the store may have brought something new of an agent in memory.

        It is asked about one agent every few seconds only, and never when nobody else writes there.
        """
        if not self._store.shared or not self._may_ask_again(agent_id):
            return False
        await self._flights.do(agent_id, lambda: self._ask(agent_id))
        return True

    def agent_gone(self, agent_id: str) -> None:
        """Forget an agent here now, and in the store soon."""
        self._budget.agent_gone(agent_id)
        self._gone[agent_id] = None
        if len(self._gone) > self._agents_max:
            # The store forgets it by itself after a day.
            self._gone.popitem(last=False)

    async def run(self) -> None:
        """Tell the store what is new, every few seconds, and once more when cancelled."""
        try:
            while True:
                await self._clock.sleep(self._tell_seconds)
                await self.tell()
        finally:
            with anyio.move_on_after(self._stop_seconds, shield=True):
                await self.tell()

    async def tell(self) -> None:
        """Tell the store all that is new. What it does not take is told again at the next call."""
        if self._gone and not await self._forget():
            return
        while changes := self._budget.changes(self._agents_at_once):
            told = False
            try:
                windows = await self._store.take(changes, now=self._clock.time())
                told = True
            except BudgetStoreError as error:
                self._failed("take", error)
                return
            finally:
                if not told:  # Also when cancelled, so that nothing is left out.
                    self._budget.not_told(changes)
            for change, window in zip(changes, windows, strict=True):
                self._budget.adopt(change.agent_id, window, now=self._clock.time())
            self._trouble.is_over()

    async def _forget(self) -> bool:
        gone = list(self._gone)
        try:
            await self._store.forget(gone)
        except BudgetStoreError as error:
            self._failed("forget", error)
            return False
        for agent_id in gone:
            self._gone.pop(agent_id, None)
        return True

    async def _ask(self, agent_id: str) -> None:
        now, steady = self._clock.time(), self._clock.monotonic()
        if self._failed_at is not None and steady - self._failed_at < self._ask_again_seconds:
            self._budget.learn(agent_id, None, now=now, sure=self._budget.is_sure_of(agent_id))
            return
        try:
            with anyio.fail_after(self._answer_seconds):
                known = await self._store.load(agent_id, now=now)
        except (BudgetStoreError, TimeoutError) as error:
            self._failed_at = steady
            self._failed("load", error)
            self._budget.learn(agent_id, None, now=now, sure=self._budget.is_sure_of(agent_id))
            return
        self._failed_at = None
        self._trouble.is_over()
        if agent_id in self._gone:
            known = None  # It is only not forgotten yet.
        self._budget.learn(agent_id, known, now=now, sure=True)

    def _may_ask_again(self, agent_id: str) -> bool:
        steady = self._clock.monotonic()
        asked = self._asked.get(agent_id)
        if asked is not None and steady - asked < self._ask_again_seconds:
            return False
        self._asked[agent_id] = steady
        self._asked.move_to_end(agent_id)
        if len(self._asked) > self._agents_max:
            self._asked.popitem(last=False)
        return True

    def _failed(self, call: str, error: BudgetStoreError | TimeoutError) -> None:
        self._metrics.inc(INGEST_BUDGET_FAILURES, call=call)
        text = str(error) or f"no answer within {self._answer_seconds:g} s"
        self._trouble.goes_on(self._clock.monotonic(), {"call": call, "error": text})
