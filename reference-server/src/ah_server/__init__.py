"""The five libraries composed into one server, on embedded defaults or on real backends."""

__all__: list[str] = []
