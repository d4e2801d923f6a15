"""Many silences at once: which one suppresses an event, and when that may change."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from attrs import field, frozen

from ahrules._arguments import expect, expect_no_single
from ahrules._moments import check_aware
from ahrules.errors import FieldError, UnknownZoneError
from ahrules.silences._companies import Company
from ahrules.silences._compiled import Compiled
from ahrules.silences._matching import EventFields, compile_matchers
from ahrules.silences._window import WallWindow
from ahwire.hub import Silence

_WAY_OUT = "give a Silence, such as from_json reads"


@frozen(kw_only=True)
class SilenceError:
    """A silence that cannot be used; it suppresses nothing.

    Attributes:
        company_id: Its company.
        silence_id: Its id.
        errors: Its faults, by field path.
    """

    company_id: str
    silence_id: str
    errors: tuple[FieldError, ...]

    def __str__(self) -> str:
        """Return the silence and its faults in one text."""
        return f"silence {self.silence_id!r}: " + "; ".join(str(error) for error in self.errors)


@frozen(eq=False, repr=False)
class SilenceSet:
    """An immutable set of silences, made by `compile_silences`; several threads may read it.

    Attributes:
        errors: The silences that cannot be used, in the order they came.
    """

    errors: tuple[SilenceError, ...] = ()
    _companies: Mapping[str, Company] = field(factory=dict, alias="companies")

    def __len__(self) -> int:
        """Return how many silences can be used."""
        return sum(len(company.all) for company in self._companies.values())

    def count_of(self, company_id: str) -> int:
        """Return how many silences of a company can be used."""
        company = self._companies.get(company_id)
        return 0 if company is None else len(company.all)

    def __repr__(self) -> str:
        """Return the size, not the silences."""
        return f"<SilenceSet of {len(self)} silences, {len(self.errors)} errors>"

    def active(self, event: EventFields, now: datetime) -> Silence | None:
        """Return the silence that suppresses an event at an instant, if one does.

        A silence holds from `starts_at` on and no more at `ends_at`; within that, inside its
        windows where it has some. All its matchers must hold. Other companies' silences are never
        asked. Of several, the one with the first id in order of text is returned.

        Args:
            event: What is told.
            now: When: an aware datetime.

        Raises:
            InstantError: `now` is naive.
        """
        check_aware(now)
        company = self._companies.get(event.company_id)
        if company is None:
            return None
        for each in map(company.all.__getitem__, company.candidates(event)):
            if each.is_active(now) and each.matches(event):
                return each.silence
        return None

    def next_change(self, now: datetime, *, company_id: str | None = None) -> datetime | None:
        """Return the first instant after `now` at which a silence begins or ends to hold.

        Between the two every answer of `active` stays the same.

        Args:
            now: An aware datetime.
            company_id: Look at this company only.

        Returns:
            The instant, in UTC; None when nothing ever changes.

        Raises:
            InstantError: `now` is naive, or too near to the end of the calendar.
        """
        check_aware(now)
        if company_id is None:
            companies = list(self._companies.values())
        else:
            companies = [self._companies[company_id]] if company_id in self._companies else []
        changes = (each.next_change(now) for company in companies for each in company.all)
        return min((change for change in changes if change is not None), default=None)


def companies_of(silences: SilenceSet) -> Mapping[str, Company]:
    """Return the silences of each company that has some."""
    return silences._companies  # noqa: SLF001 - of this module


def compile_silences(silences: Iterable[Silence]) -> SilenceSet:
    """Make silences ready; those that cannot be used are collected, the others work.

    A silence cannot be used when a pattern is not RE2's, when its time zone is none, when its id is
    there twice in its company (the first counts), when a matcher can never hold, or when it would
    match everything of its company and does not say `all: true`.

    Raises:
        TypeError: One is no `Silence`.
    """
    errors: list[SilenceError] = []
    seen: set[tuple[str, str]] = set()
    companies: defaultdict[str, list[Compiled]] = defaultdict(list)
    expect_no_single("silences", silences, Silence)
    for index, silence in enumerate(silences):
        expect(f"silences[{index}]", silence, Silence, _WAY_OUT)
        compiled, faults = _compile(silence)
        key = (silence.company_id, silence.silence_id)
        if key in seen:
            faults.append(
                FieldError("silence_id", f"{silence.silence_id!r} is there twice; give each its id")
            )
        seen.add(key)
        if faults:
            errors.append(
                SilenceError(
                    company_id=silence.company_id,
                    silence_id=silence.silence_id,
                    errors=tuple(faults),
                )
            )
        else:
            companies[silence.company_id].append(compiled)
    return SilenceSet(
        tuple(errors), {company: Company.of(found) for company, found in companies.items()}
    )


def check_silence(silence: Silence) -> tuple[FieldError, ...]:
    """Return what is wrong with a silence, by field path; nothing: it can be used.

    Raises:
        TypeError: It is no `Silence`.
    """
    expect("silence", silence, Silence, _WAY_OUT)
    return tuple(_compile(silence)[1])


def _compile(silence: Silence) -> tuple[Compiled, list[FieldError]]:
    tests, faults = compile_matchers(silence)
    window = None
    if silence.recurrence is not None:
        try:
            window = WallWindow.of(silence.recurrence)
        except UnknownZoneError as error:
            faults.append(FieldError("recurrence.timezone", str(error)))
    return Compiled(silence, tests, window), faults
