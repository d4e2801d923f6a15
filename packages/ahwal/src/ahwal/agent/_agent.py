"""The agent: collects on a fixed schedule into the queue, and sends from it beside that.

```
collect loop   sleep until due → collectors → Sender.enqueue → wake the delivery loop
delivery loop  wait for a batch or for the backoff → Sender.tick → wake the upkeep loop
upkeep loop    configuration, renewal of the token, inventory, each when it is due
disk loop      only while the queue on disk cannot be opened: try each minute
status file    every 10 s, for `ahagent status`
```

The queue is the only thing between the first two: a slow collector never delays a collection.
"""

import logging
import random
import threading
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Self

import anyio

from ahwal import transport
from ahwal._sample import Sample
from ahwal._threads import CallSoon, call_soon_of_this_loop, in_thread
from ahwal._version import package_version
from ahwal.agent._clients import Clients
from ahwal.agent._collect import Collect, Collector, CollectorSet, to_collectors
from ahwal.agent._collecting import CollectLoop
from ahwal.agent._config import AgentConfig
from ahwal.agent._credentials import CredentialStore
from ahwal.agent._delivery import DeliveryLoop
from ahwal.agent._disk import Disk, OpenQueue, memory_queue_bytes, open_wal
from ahwal.agent._intake import Intake
from ahwal.agent._inventory import InventoryReport, ReadInventory, basic_inventory
from ahwal.agent._machine import is_same_machine, machine_id
from ahwal.agent._status import AgentState, AgentStatus, LastKnown
from ahwal.agent._status_file import StatusFile
from ahwal.agent._tuning import Tuning
from ahwal.agent._upkeep import UpkeepLoop
from ahwal.clock import AsyncClock, SystemClock
from ahwal.errors import AgentRevokedError, AhwalError, WALLockedError
from ahwal.queue import Queue
from ahwal.sender import Appended, Enqueued, Sender, SenderStatus
from ahwire import Rng

CLOSE_TIMEOUT_SECONDS = 3.0


class Agent:
    """An agent inside another program.

    In a threaded program `with Agent(config, collect) as agent:` runs it in a thread of its own;
    under asyncio or trio it is `await agent.run()` in a task. Only the constructor raises into a
    threaded host; later failures are logged and shown by `status`, and by `ahagent status` from
    outside, through a file in the state directory. Signals and logging stay the host's.

    Args:
        config: The settings.
        collect: A function that returns samples, a collector, or a sequence of both, such as
            `[*ahwal.host.collectors(), my_function]`. A function's name is its collector's name.
        on_appended: Told of each batch once the disk has it; see `Sender`.
        clock: Wall and monotonic clock, and sleeping.
        rng: Jitter.
        client: Default: an `ahwal.Client` as configured.
        open_queue: Opens the durable queue. Default: the WAL in the state directory.
        read_machine_id: Default: this machine's.
        read_inventory: Describes the machine, such as `ahwal.host.inventory`; may block. Default:
            what the standard library knows. What returns None reports nothing.
        logger: Default: the logger `ahwal.agent`.

    Raises:
        ConfigError: No collector address, or a broken set of collectors.
        NotEnrolledError: The state directory holds no identity.
        CredentialsError: The identity cannot be read.
    """

    def __init__(
        self,
        config: AgentConfig,
        collect: Collect | Collector | Sequence[Collector | Collect],
        *,
        on_appended: Callable[[Appended], None] | None = None,
        clock: AsyncClock | None = None,
        rng: Rng | None = None,
        client: "transport.Client | None" = None,
        open_queue: OpenQueue | None = None,
        read_machine_id: Callable[[], str | None] | None = None,
        read_inventory: ReadInventory = basic_inventory,
        logger: logging.Logger | None = None,
    ) -> None:
        self._config = config
        self._log = logger if logger is not None else logging.getLogger("ahwal.agent")
        self._clock: AsyncClock = clock if clock is not None else SystemClock()
        self._rng: Rng = rng if rng is not None else random.Random()
        self._on_appended = on_appended
        self._collectors = CollectorSet(collectors=to_collectors(collect), logger=self._log)
        self._store = CredentialStore(state_dir=config.state_dir)
        self._credentials = self._store.load()
        self._intake = Intake(logger=self._log)
        self._upkeep: UpkeepLoop | None = None
        self._clients = Clients(
            config=config, credentials=self._credentials, clock=self._clock, given=client
        )
        self._inventory = InventoryReport(read=read_inventory, clock=self._clock, logger=self._log)
        self._read_machine_id = read_machine_id or (lambda: machine_id(config.state_dir))
        self._disk = Disk(
            open_queue=open_queue or (lambda: open_wal(config)),
            clock=self._clock,
            logger=self._log,
        )
        self._status_file = StatusFile(
            state_dir=config.state_dir, read_status=self.status, logger=self._log
        )
        # Another agent's status is not to be replaced: ours is written once the directory is ours.
        self._owns_directory = False
        self._tuning = Tuning(config=config, logger=self._log)
        self._state = AgentState.NEW
        self._error = ""
        self._failure: AhwalError | None = None
        self._started_at: float | None = None
        self._collecting: CollectLoop | None = None
        self._sender: Sender | None = None
        self._last_status: SenderStatus | None = None
        self._last_known = LastKnown(look=self._look, in_child=self._intake.in_child)
        self._stop_wanted = threading.Event()
        self._stop_event: anyio.Event | None = None
        self._call_soon: CallSoon | None = None
        self._thread: threading.Thread | None = None

    def __repr__(self) -> str:
        if not hasattr(self, "_thread"):
            return "<Agent that was not built>"  # In a traceback of the constructor.
        return f"<Agent {self._credentials.agent_id} {self.status().line()}>"

    def __enter__(self) -> Self:
        if self._thread is not None:
            raise RuntimeError("this agent was started before; make a new one")
        self._thread = threading.Thread(target=self._run_in_thread, name="ahwal agent", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        # The thread is a daemon: if it should hang in a dead disk, the host can still end.
        self.join(self._config.shutdown_flush_seconds + CLOSE_TIMEOUT_SECONDS)

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end of the thread that `with` began; return whether it has ended."""
        assert self._thread is not None, "entered before"
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Ask the agent to end; from any thread, and any number of times."""
        self._stop_wanted.set()
        call_soon, event = self._call_soon, self._stop_event
        if call_soon is None or event is None or self._intake.in_child():
            return
        call_soon(event.set)

    def enqueue(
        self,
        samples: Iterable[Sample],
        *,
        collected_at_ms: int | None = None,
        timeout_seconds: float = 10.0,
    ) -> Enqueued:
        """Put samples into the queue beside those of the collectors; blocking, from any thread.

        Raises only what `samples` itself raises. What cannot be sent is counted; an agent that has
        ended, was revoked, is not on its machine or in a forked child takes nothing: result and log
        say both. For one that starts it waits. `collected_at_ms` (Unix) is by default now.
        """
        return self._intake.enqueue(
            samples, collected_at_ms=collected_at_ms, timeout_seconds=timeout_seconds
        )

    def flush(self, timeout_seconds: float) -> bool:
        """Wait, in any thread but the agent's, until nothing is queued; return whether it is so."""
        return self._intake.flush(timeout_seconds)

    def status(self) -> AgentStatus:
        """Return all figures at this moment, from any thread; in a forked child the last ones."""
        return self._last_known()

    def _look(self) -> AgentStatus:
        started = self._started_at
        sender = self._last_status
        if sender is None and self._sender is not None:
            sender = self._sender.status()
        return AgentStatus(
            state=self._state,
            error=self._error or self._disk.problem,
            storage="disk" if sender is not None and sender.on_disk else "memory",
            agent_id=self._credentials.agent_id,
            collector_url=self._clients.current.collector_url,
            version=package_version(),
            interval_seconds=self._tuning.effective.interval_seconds,
            uptime_seconds=0.0 if started is None else self._clock.monotonic() - started,
            cycles=0 if self._collecting is None else self._collecting.cycles,
            missed_cycles=0 if self._collecting is None else self._collecting.missed,
            sender=sender,
        )

    async def reload(self, config: AgentConfig) -> None:
        """Take over interval, catch-up, labels and the transport from another configuration.

        A request under way ends over the transport with which it began. Where the queue is and how
        large it may be stays as it was at the start.

        Raises:
            ConfigError: An address or a file in it is wrong; everything stays as it was.
        """
        upkeep = self._upkeep
        identity = self._credentials if upkeep is None else upkeep.credentials
        client = self._clients.make(config, identity)
        if self._state is AgentState.AGENT_REVOKED:
            client.clear_token()
        self._clients.use(client)
        self._config = config
        if self._sender is not None:
            self._sender.use_transport(client)
        if upkeep is not None:
            upkeep.use_client(client)
        self._tuning.take_own(config)
        await self._clients.close_old()

    async def run(self) -> None:
        """Collect and send until `stop` or cancellation, then send on for `shutdown_flush_seconds`.

        Raises:
            WALLockedError: Another process uses the state directory.
            AgentRevokedError: The agent was revoked and `on_revoked` is `exit`.
        """
        if self._started_at is not None:
            raise RuntimeError("this agent was started before; make a new one")
        self._started_at = self._clock.monotonic()
        self._stop_event = anyio.Event()
        self._call_soon = call_soon_of_this_loop()
        self._intake.start()
        try:
            if not self._stop_wanted.is_set():
                await self._run()
        except AhwalError as error:
            self._failure = error
        finally:
            self._intake.close()
            if self._sender is not None:
                # The queue is about to be closed; what it said last stays to be asked for.
                self._last_status = self._sender.status()
            if self._failure is not None:
                self._state, self._error = AgentState.FAILED, str(self._failure)
            else:
                self._state = AgentState.STOPPED
            with anyio.move_on_after(CLOSE_TIMEOUT_SECONDS, shield=True):
                await in_thread(self._intake.drain)
                if self._sender is not None:
                    await self._disk.save(self._sender)
                    self._last_status = self._sender.status()
                if self._owns_directory:
                    # While the queue still is locked, so that a successor writes after us.
                    await self._status_file.write()
                await self._clients.aclose()
                await self._disk.close()
        if self._failure is not None:
            raise self._failure

    def _run_in_thread(self) -> None:
        try:
            anyio.run(self.run)
        except Exception as error:  # noqa: BLE001 - the host must never see our thread fail
            self._state, self._error = AgentState.FAILED, str(error)
            self._log.exception("the agent ended with an error")

    async def _run(self) -> None:
        assert self._stop_event is not None
        if not await is_same_machine(
            self._credentials.machine_id, self._read_machine_id, self._log
        ):
            self._state = AgentState.IDENTITY_MISMATCH
            self._error = "this is not the machine that was enrolled; run `ahagent enroll --force`"
            self._log.error("identity_mismatch: %s", self._error)
            self._owns_directory = True
            self._intake.close()
            await self._status_file.write()
            await self._stop_event.wait()
            return
        queue = await self._disk.open()
        self._owns_directory = True
        sender = self._sender = self._make_sender(queue)
        upkeep = self._upkeep = self._make_upkeep(sender)
        delivery = DeliveryLoop(
            sender=sender,
            clock=self._clock,
            rng=self._rng,
            on_step=upkeep.wake,
            on_revoked=self._revoked,
            logger=self._log,
        )
        collecting = self._collecting = self._make_collecting(sender, delivery)
        self._tuning.bind(sender, collecting)
        self._state = AgentState.RUNNING
        self._intake.open(sender, delivery.wake)
        self._log.info(
            "agent %s sends to %s", self._credentials.agent_id, self._clients.current.collector_url
        )
        async with anyio.create_task_group() as group:
            # Delivery is shielded, so that a request under way may end within the time for
            # flushing, however the end came: by `stop`, or by cancellation from outside.
            last = anyio.CancelScope(shield=True)

            async def deliver() -> None:
                with last:
                    await delivery.run()

            group.start_soon(deliver)
            try:
                async with anyio.create_task_group() as work:
                    if queue is None:
                        work.start_soon(self._return_to_disk, sender)
                    work.start_soon(collecting.run)
                    work.start_soon(upkeep.run)
                    work.start_soon(self._status_file.run)
                    await self._stop_event.wait()
                    work.cancel_scope.cancel()
            finally:
                last.deadline = anyio.current_time() + self._config.shutdown_flush_seconds
                delivery.stop()
        self._log.info("agent stopped; %s", sender.status().line())

    async def _return_to_disk(self, sender: Sender) -> None:
        assert self._stop_event is not None
        try:
            await self._disk.run(sender)
        except WALLockedError as error:
            # Another process is this agent now; two must not send under one identity.
            self._log.error("the queue on disk is in use, this agent ends: %s", error)
            self._failure = error
            self._stop_event.set()

    def _revoked(self) -> None:
        self._state = AgentState.AGENT_REVOKED
        self._error = "the collector revoked this agent; enrol again and restart"
        if self._config.on_revoked == "exit":
            self._failure = AgentRevokedError(self._error)
            assert self._stop_event is not None
            self._stop_event.set()

    def _make_sender(self, queue: Queue | None) -> Sender:
        return Sender(
            queue=queue,
            transport=self._clients.current,
            clock=self._clock,
            rng=self._rng,
            interval_seconds=self._tuning.effective.interval_seconds,
            catch_up_batches=self._tuning.effective.catch_up_batches,
            labels=self._tuning.effective.labels,
            memory_bytes_max=memory_queue_bytes(self._config),
            on_appended=self._on_appended,
            on_config_etag=lambda etag: self._tell(lambda upkeep: upkeep.config_changed(etag)),
            on_renew_token=lambda: self._tell(lambda upkeep: upkeep.renewal_wanted()),
        )

    def _make_collecting(self, sender: Sender, delivery: DeliveryLoop) -> CollectLoop:
        return CollectLoop(
            sender=sender,
            collectors=self._collectors,
            clock=self._clock,
            agent_id=self._credentials.agent_id,
            effective=self._tuning.effective,
            memory_limit_bytes=self._config.memory_limit_bytes,
            on_enqueued=delivery.wake,
            logger=self._log,
        )

    def _make_upkeep(self, sender: Sender) -> UpkeepLoop:
        return UpkeepLoop(
            client=self._clients.current,
            clock=self._clock,
            rng=self._rng,
            credentials=self._credentials,
            store=self._store,
            inventory=self._inventory,
            delivery_state=lambda: sender.state,
            on_config=self._tuning.take_remote if self._config.allow_remote_config else None,
            logger=self._log,
        )

    def _tell(self, message: Callable[[UpkeepLoop], None]) -> None:
        if self._upkeep is not None:
            message(self._upkeep)
