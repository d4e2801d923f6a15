"""What the start waits for: told by the probes while the doors let nobody in yet."""

_ASKED = "asked, and no answer yet"
_STARTING = "the server is starting"


class Awaited:
    """The services that were asked since the start began, each with what came of it."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}

    def asked(self, name: str) -> None:
        """A service is asked from now on; what an earlier answer said stays until the next one."""
        if self._states.get(name, "ok") == "ok":
            self._states[name] = _ASKED

    def answered(self, name: str, trouble: str = "") -> None:
        """A service answered, or did not: then `trouble` says why it cannot be used."""
        self._states[name] = trouble or "ok"

    def checks(self) -> dict[str, str]:
        """By name ``ok``, or what is wrong; ``start`` is never ``ok``, since it is not over."""
        waits = sorted(name for name, state in self._states.items() if state != "ok")
        start = f"{_STARTING}, and waits for {', '.join(waits)}" if waits else _STARTING
        return dict(sorted({**self._states, "start": start}.items()))
