"""One silence, made ready to be asked."""

from collections.abc import Iterator
from datetime import datetime

from attrs import frozen

from ahrules._matchers import Test
from ahrules._moments import instant, unix_second
from ahrules.silences._matching import EventFields, is_closed, text_of
from ahrules.silences._window import WallWindow
from ahwire.hub import MatchOp, Silence


@frozen
class Compiled:
    """A silence that can be used."""

    silence: Silence
    tests: tuple[tuple[str, Test], ...]
    window: WallWindow | None

    def is_active(self, now: datetime) -> bool:
        """Whether it holds at an instant."""
        silence = self.silence
        if now < silence.starts_at or (silence.ends_at is not None and now >= silence.ends_at):
            return False
        return self.window is None or self.window.holds(unix_second(now))

    def matches(self, event: EventFields) -> bool:
        """Whether all its matchers hold for an event."""
        return all(test(text_of(event, label)) for label, test in self.tests)

    def patterns(self) -> Iterator[tuple[str, str]]:
        """Give the (label, pattern) without which an event is not matched.

        Those are left out that match the empty text, and so what an event does not have.
        """
        for matcher, (label, test) in zip(self.silence.matchers, self.tests, strict=True):
            if matcher.op is MatchOp.RE and not is_closed(label) and not test(""):
                yield label, matcher.value

    def next_change(self, now: datetime) -> datetime | None:
        """When it next begins or ends to hold; None: never."""
        silence = self.silence
        if now < silence.starts_at:
            if self.is_active(silence.starts_at):
                return silence.starts_at
            now = silence.starts_at
        elif silence.ends_at is not None and now >= silence.ends_at:
            return None
        edge = self.window.next_edge(unix_second(now)) if self.window is not None else None
        if edge is not None:
            moment = instant(edge)
            if silence.ends_at is None or moment < silence.ends_at:
                return moment
        return silence.ends_at if self.is_active(now) else None
