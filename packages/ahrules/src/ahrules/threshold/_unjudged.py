"""A rule that does not judge a series, and why."""

from attrs import frozen


@frozen(kw_only=True)
class Unjudged:
    """A rule over a series that was left out, the first one of its rule and reason.

    Attributes:
        reason: A bound's name (`watches_max`, `series_watches_max`, `series_rules_max`,
            `rule_series_max`): there is no room. `rule_failed`: it raised when it was judged.
        rule_id: The rule.
        server_id: The server.
        series_key: The series, as `series_key` writes it.
        bound: What the bound is; None with `rule_failed`.
        error: What was raised; empty where it is a bound.
    """

    reason: str
    rule_id: str
    server_id: str
    series_key: str
    bound: int | None
    error: str
