"""Which rules of a tenant an event matches, in a few look-ups whatever their number.

Laws: each enabled rule has a position, and each value of each of its filters has a posting: the set
of positions that name it (`_postings`). The rules whose filters hold are the meet of four sets, one
a filter: those that name what the event has, and those without the filter. Only the rules left are
looked at one by one, and of these only the predicates. An index is immutable; `replace` copies the
tables that change and shares their postings.

What an index has worked out for an event's type and severity, or for its host, it keeps for the
next one, in a bounded number of bytes. That changes no answer, and threads need no lock for it: at
worst two work out the same.
"""

from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from operator import attrgetter
from typing import Final, TypeAlias, cast

from ahrules._compiled import PredicatedRule, RuleMatch
from ahrules._evaluate import NO_PAYLOAD, Payload
from ahrules._globs import Globs
from ahrules._networks import NO_SPANS, Spans, ipv4_number, network_key, read_address
from ahrules._patterns import PatternCache, is_glob
from ahrules._postings import FEW, Posting, as_mask, changed, positions
from ahrules._rule import NotificationRule
from ahwire.notification import IncidentEvent

Entry: TypeAlias = RuleMatch | PredicatedRule
Kind: TypeAlias = Hashable
Table: TypeAlias = Mapping[Hashable, Posting]
Positions: TypeAlias = defaultdict[Hashable, list[int]]
Changes: TypeAlias = defaultdict[Kind, Positions]

_EMPTY: Final[Table] = {}

# The kinds of values; the address tables are of the kind (version, how many bits may differ).
_SEVERITY: Final = "severity"
_TYPE: Final = "event_type"
_PREFIX: Final = "event_type*"
_HOST: Final = "host"
_GLOB: Final = "host*"
_FLAG: Final = "flag"

_OF_ANY_SEVERITY: Final = "any severity"
_OF_ANY_TYPE: Final = "any type"
_WITH_HOST: Final = "with host"
_WITH_ADDRESS: Final = "with address"

# What an index may keep of what it has worked out, for each of two questions.
_MEMO_BYTES: Final = 65_536
_MEMO_BYTES_A_RULE: Final = 256
# What an item takes beside its mask: the key, of a bounded length, and its place.
_ITEM_BYTES: Final = 256
_MEMO_CHARS_MAX: Final = 64

_by_rule_id: Final = attrgetter("rule.rule_id")


class TenantIndex:
    """The enabled rules of one tenant; nothing in it changes once it is made."""

    __slots__ = (
        "_any_severity",
        "_any_type",
        "_entries",
        "_free",
        "_globs",
        "_host_masks",
        "_hosts",
        "_is_ordered",
        "_memo_items_max",
        "_networks",
        "_patterns",
        "_positions",
        "_prefix_lengths",
        "_prefixes",
        "_severities",
        "_spans",
        "_tables",
        "_type_masks",
        "_types",
        "_with_address",
        "_without_address",
    )

    def __init__(
        self,
        *,
        patterns: PatternCache,
        positions: Mapping[str, int] | None = None,
        entries: tuple[Entry | None, ...] = (),
        free: tuple[int, ...] = (),
        tables: Mapping[Kind, Table] | None = None,
        globs: Globs | None = None,
        spans: tuple[Spans, Spans] = NO_SPANS,
        is_ordered: bool = True,
    ) -> None:
        """Keep the rules.

        Args:
            patterns: Where globs and predicates get their patterns.
            positions: The position of each rule, by rule id.
            entries: What is at each position: the match of a rule without predicates, a rule with
                them, or None.
            free: The positions of None.
            tables: Postings by value, a table a kind.
            globs: The values of kind `_GLOB`.
            spans: The values of the address tables, of IPv4 and of IPv6.
            is_ordered: Whether positions are in the order of rule ids.
        """
        self._patterns = patterns
        self._positions = positions or {}
        self._entries = entries
        self._free = free
        self._tables = tables = tables or {}
        self._globs = globs or Globs()
        self._spans = spans
        self._is_ordered = is_ordered
        self._severities = tables.get(_SEVERITY, _EMPTY)
        self._types = tables.get(_TYPE, _EMPTY)
        self._prefixes = tables.get(_PREFIX, _EMPTY)
        self._prefix_lengths = sorted({len(str(prefix)) for prefix in self._prefixes})
        self._hosts = tables.get(_HOST, _EMPTY)
        flags = {key: as_mask(each) for key, each in tables.get(_FLAG, _EMPTY).items()}
        self._any_type = flags.get(_OF_ANY_TYPE, 0)
        self._any_severity = flags.get(_OF_ANY_SEVERITY, 0)
        self._with_address = flags.get(_WITH_ADDRESS, 0)
        self._without_address = ~self._with_address
        # By version and shift: the kind of an address table is a pair of these.
        self._networks: tuple[dict[int, Table], dict[int, Table]] = ({}, {})
        for kind, table in tables.items():
            if isinstance(kind, tuple):
                self._networks[kind[0]][kind[1]] = table
        memo_bytes_max = _MEMO_BYTES + _MEMO_BYTES_A_RULE * len(entries)
        self._memo_items_max = memo_bytes_max // (_ITEM_BYTES + len(entries) // 7)
        self._type_masks: dict[tuple[str, str], int] = {}
        # All bits but those of rules that want a host: what an event without one gets.
        self._host_masks: dict[str | None, int] = {None: ~flags.get(_WITH_HOST, 0)}

    def __len__(self) -> int:
        """Return the number of rules."""
        return len(self._positions)

    def match(self, event: IncidentEvent) -> list[RuleMatch]:
        """Return what an event of the tenant matches, sorted by rule id; never raises."""
        mask = self.candidates(event)
        found: list[RuleMatch] = []
        entries, payload = self._entries, event.payload or NO_PAYLOAD
        if mask.bit_count() > FEW:
            for position in positions(mask):
                _ask(entries[position], payload, found)
        else:
            # The same, without a call or two: almost every event goes this way.
            while mask:
                position = mask.bit_length() - 1
                mask ^= 1 << position
                entry = entries[position]
                if isinstance(entry, RuleMatch):
                    found.append(entry)
                elif entry is not None and (match := entry.ask(payload)) is not None:
                    found.append(match)
        if len(found) > 1:
            if self._is_ordered:
                found.reverse()
            else:
                found.sort(key=_by_rule_id)
        return found

    def candidates(self, event: IncidentEvent) -> int:
        """Return the positions of the rules all of whose filters hold, as a mask."""
        asked = (event.severity, event.event_type)
        known = self._type_masks.get(asked)
        mask = self._type_mask(asked) if known is None else known
        host = event.host
        known = self._host_masks.get(host)
        mask &= self._host_mask(host or "") if known is None else known
        if mask & self._with_address:
            mask &= self._without_address | self._address_hits(event.ip_address)
        return mask

    def _type_mask(self, asked: tuple[str, str]) -> int:
        """Return the rules that take a severity and type."""
        severity, event_type = asked
        hits = self._any_type | as_mask(self._types.get(event_type, 0))
        for length in self._prefix_lengths:
            posting = self._prefixes.get(event_type[:length])
            if posting is not None:
                hits |= as_mask(posting)
        mask = hits & (self._any_severity | as_mask(self._severities.get(severity, 0)))
        if len(event_type) <= _MEMO_CHARS_MAX:
            if len(self._type_masks) >= self._memo_items_max:
                self._type_masks = {}
            self._type_masks[asked] = mask
        return mask

    def _host_mask(self, host: str) -> int:
        """Return the rules that take a host, those without the filter too."""
        hits = as_mask(self._hosts.get(host, 0))
        for glob in self._globs.matching(host, self._patterns):
            hits |= as_mask(self._tables[_GLOB][glob])
        mask = self._host_masks[None] | hits
        if len(host) <= _MEMO_CHARS_MAX:
            if len(self._host_masks) >= self._memo_items_max:
                self._host_masks = {None: self._host_masks[None]}
            self._host_masks[host] = mask
        return mask

    def _address_hits(self, text: str | None) -> int:
        # An address in the usual spelling of IPv4 is asked first, because it is read fastest.
        number, is_v6 = ipv4_number(text), False
        if number is None:
            address = read_address(text)
            if address is None:
                return 0
            is_v6, number = address
        hits = 0
        tables, spans = self._networks[is_v6], self._spans[is_v6]
        for shift in spans.wide + spans.narrow.get(number >> spans.top_shift, ()):
            posting = tables.get(shift, _EMPTY).get(number >> shift)
            if posting is not None:
                hits |= as_mask(posting)
        return hits

    def replace(
        self, incoming: Iterable[NotificationRule], outgoing: Iterable[str]
    ) -> "TenantIndex":
        """Return the index with rules put in, replaced or taken out.

        Args:
            incoming: Enabled rules, one an id.
            outgoing: Ids of rules that leave; those that are not there are passed over.
        """
        rules = {rule.rule_id: rule for rule in incoming}
        positions, entries, free = dict(self._positions), list(self._entries), list(self._free)
        is_ordered = self._is_ordered
        last = entries[-1].rule.rule_id if entries and entries[-1] is not None else ""
        added: Changes = defaultdict(_no_positions)
        removed: Changes = defaultdict(_no_positions)
        for rule_id in {*outgoing, *rules}:
            position = positions.get(rule_id)
            entry = None if position is None else entries[position]
            if position is None or entry is None:
                continue
            _post(removed, entry.rule, position)
            if rule_id not in rules:
                del positions[rule_id]
                entries[position] = None
                free.append(position)
        for rule_id in sorted(rules):
            position = positions.get(rule_id)
            if position is None:
                # A position that became free keeps no order, nor does an id before the last one.
                is_ordered = is_ordered and not free and last <= rule_id
                position = free.pop() if free else len(entries)
                last = rule_id
            if position == len(entries):
                entries.append(None)
            positions[rule_id] = position
            entries[position] = self._entry(rules[rule_id])
            _post(added, rules[rule_id], position)
        return self._changed(positions, entries, free, added, removed, is_ordered=is_ordered)

    def _entry(self, rule: NotificationRule) -> Entry:
        if rule.predicates:
            return PredicatedRule(rule, self._patterns)
        return RuleMatch(rule=rule)

    def _changed(
        self,
        positions: Mapping[str, int],
        entries: list[Entry | None],
        free: list[int],
        added: Changes,
        removed: Changes,
        *,
        is_ordered: bool,
    ) -> "TenantIndex":
        tables = dict(self._tables)
        globs, spans = self._globs, list(self._spans)
        for kind in dict.fromkeys((*removed, *added)):
            before = tables.get(kind, _EMPTY)
            after = changed(before, added[kind], removed[kind], len(entries))
            if kind == _GLOB or isinstance(kind, tuple):
                new = [key for key in added[kind] if key not in before]
                gone = [key for key in removed[kind] if key not in after]
            if kind == _GLOB:
                globs = globs.replace(map(str, new), map(str, gone))
            if isinstance(kind, tuple):
                is_v6, shift = kind
                spans[is_v6] = spans[is_v6].extended(shift, cast("list[int]", new))
            if after:
                tables[kind] = after
            else:
                tables.pop(kind, None)
        return TenantIndex(
            patterns=self._patterns,
            positions=positions,
            entries=tuple(entries),
            free=tuple(free),
            tables=tables,
            globs=globs,
            spans=(spans[0], spans[1]),
            is_ordered=is_ordered,
        )


def _ask(entry: Entry | None, payload: Payload, found: list[RuleMatch]) -> None:
    """Append the match of what is at a position, if it is one."""
    match = entry.ask(payload) if isinstance(entry, PredicatedRule) else entry
    if match is not None:
        found.append(match)


def _no_positions() -> Positions:
    return defaultdict(list)


def _post(changes: Changes, rule: NotificationRule, position: int) -> None:
    """Put a rule's position where its postings are."""
    filters = rule.filters
    flags = changes[_FLAG]
    if filters.severity is None:
        flags[_OF_ANY_SEVERITY].append(position)
    else:
        table = changes[_SEVERITY]
        for severity in filters.severity:
            table[severity].append(position)
    if filters.event_type is None or "*" in filters.event_type:
        flags[_OF_ANY_TYPE].append(position)
    else:
        for text in filters.event_type:
            if text.endswith("*"):
                changes[_PREFIX][text[:-1]].append(position)
            else:
                changes[_TYPE][text].append(position)
    if filters.host is not None:
        flags[_WITH_HOST].append(position)
        for text in filters.host:
            changes[_GLOB if is_glob(text) else _HOST][text].append(position)
    if filters.ip_address is not None:
        flags[_WITH_ADDRESS].append(position)
        for text in filters.ip_address:
            kind, key = network_key(text)
            changes[kind][key].append(position)
