"""Is one batch at fault, or the path? The question that answers outside the status table raise.

A proxy, a firewall or a captive portal may answer anything to everything; a broken batch may earn
an odd answer every time. The two look alike until another batch is tried.

Law of this file: a batch is given up on only after `ODD_ANSWERS_MAX` odd answers in a row to it
alone and an acknowledgement of the batch behind it. Any other answer to that one acquits the batch.
"""

from collections.abc import Hashable

ODD_ANSWERS_MAX = 8


class Suspicion:
    """Counts odd answers in a row to the batch at the head of the queue."""

    def __init__(self) -> None:
        self._head: Hashable | None = None
        self._odd_answers = 0

    @property
    def isolate(self) -> bool:
        """Whether the head must be sent alone, so that an odd answer is about it."""
        return self._odd_answers > 0

    def try_next(self, head: Hashable) -> bool:
        """Whether the batch behind `head` should be sent instead of it, to compare."""
        return head == self._head and self._odd_answers >= ODD_ANSWERS_MAX

    def odd(self, head: Hashable) -> None:
        """Record an odd answer to `head`, sent alone or as the first of several."""
        if head != self._head:
            self._head, self._odd_answers = head, 0
        self._odd_answers += 1

    def clear(self) -> None:
        """Forget: the head was settled, or the path was found at fault."""
        self._head, self._odd_answers = None, 0
