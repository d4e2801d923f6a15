"""The notification center: incidents in, the right message to the right person out."""

__all__: list[str] = []
