"""What takes messages to people: the protocol in `base`, one file a channel."""

__all__: list[str] = []
