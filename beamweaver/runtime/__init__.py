"""The runtime: supervised actors around the pure engine."""
