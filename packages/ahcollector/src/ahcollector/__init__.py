"""Takes in batches from many agents, keeps companies apart, stores samples, and knows which agents fell silent."""

__all__: list[str] = []
