"""An agent library: a crash-proof on-disk queue and a sender that delivers every batch at least once."""

__all__: list[str] = []
