"""`ah-server demo`: the main job on real input, with a failure in the middle when it is checked."""

__all__: list[str] = []
