"""Where incidents are kept: the protocol in `base`, one machine's store in `sql`."""

__all__: list[str] = []
