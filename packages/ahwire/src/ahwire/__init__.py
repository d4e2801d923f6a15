"""Every contract that crosses a process: schema, limits, names, error codes, ids, retry schedule."""

__all__: list[str] = []
