"""Messages between zones: the protocol in `base`, the embedded one in `sql`."""

__all__: list[str] = []
