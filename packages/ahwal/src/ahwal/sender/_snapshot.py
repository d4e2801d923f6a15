"""The sender's figures at one moment."""

from collections.abc import Mapping

from attrs import frozen

from ahwal.sender._books import DropReason
from ahwal.sender._state import DeliveryState


@frozen(kw_only=True)
class SenderStatus:
    """What a sender is doing, and every point's whereabouts.

    Always true: `produced + inherited == delivered + sum(dropped.values()) + queued`.

    Attributes:
        state: The delivery state.
        upgrade_required: The collector no longer speaks this protocol; cleared by a success.
        on_disk: Whether new batches go to the disk, not to memory.
        queued_batches: Batches in both queues.
        queue_bytes: Bytes that they take.
        evicted_batches: Batches that the queues gave up since they were opened.
        evicted_batches_by_reason: The same, by `ahwal.queue.DropReason`.
        produced: Points that were handed in.
        inherited: Points that an earlier process left and this one has read.
        delivered: Points that the collector accepted.
        dropped: Points lost, by reason.
        queued: Points that are known to be in the queues.
        requests: Posts of metrics that were made.
        send_failures: Those that failed, for a reason that may pass.
        transitions: How often each state was entered.
        clock_skew_seconds: The server's clock minus ours, at the last acknowledgement: above 0
            when ours is late.
        last_success_unix_seconds: When that was; None before the first.
        last_error: The last failure, without secrets; empty when none is on.
    """

    state: DeliveryState
    upgrade_required: bool
    on_disk: bool
    queued_batches: int
    queue_bytes: int
    evicted_batches: int
    evicted_batches_by_reason: Mapping[str, int]
    produced: int
    inherited: int
    delivered: int
    dropped: Mapping[DropReason, int]
    queued: int
    requests: int
    send_failures: int
    transitions: Mapping[DeliveryState, int]
    clock_skew_seconds: float
    last_success_unix_seconds: float | None
    last_error: str

    def line(self) -> str:
        """Return the one-line form: `delivery=<state> queued=N [upgrade_required=true]`."""
        upgrade = " upgrade_required=true" if self.upgrade_required else ""
        return f"delivery={self.state} queued={self.queued_batches}{upgrade}"
