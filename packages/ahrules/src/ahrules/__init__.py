"""Which rule matches an event, which time bucket it falls in, what state an alert is in: pure functions."""

__all__: list[str] = []
