"""What a seed decides of a history before it begins: swarm testing's choice of what goes wrong.

Each kind of fault is on or off, and has a weight, so that histories differ in kind and not only in order.
The idea is that of Groce and others, "Swarm Testing" (ISSTA 2012).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

__all__ = ["KINDS", "Config"]

KINDS = (
    "process kill",
    "power cut",
    "actor kill",
    "crash point",
    "dies at point",
    "dies before commit",
    "dies after commit",
    "put refused",
    "disk full",
    "broken sync",
    "second owner",
    "clock step",
    "drain",
    "cancel",
    "noise",
    "duplicate",
    "amendment",
    "told once",
    "edits",
    "prune",
    "copy",
    "lost answer",
    "wrong answer",
    "second answer",
)


@dataclass(frozen=True)
class Config:
    """The configuration of one history; printed before it runs.

    Attributes:
        seed: What all of it is drawn from.
        weights: Kind of fault -> how likely it is; kinds that are off are left out.
        faults: How many faults there are at most.
        sync: Whether a commit survives a power cut by itself.
        threads: How many threads there are.
        runs: How many runs each of them is to make.
        limits: Options of `Limits`.
        max_concurrency: Of the graph.
        policy: Of the graph.
        durability: Of each call.
    """

    seed: int
    weights: dict[str, float]
    faults: int
    sync: bool
    threads: int
    runs: int
    limits: dict[str, int] = field(default_factory=dict)
    max_concurrency: int | None = None
    policy: str = "proceed"
    durability: str = "sync"

    def within(self, durability: str) -> Config:
        """The same with calls of that durability, and with windows that are often full."""
        most = random.Random(f"window {self.seed}").choice([1, 2, 5, 64])
        limits = {**self.limits, "ahead_commits": most}
        return replace(self, durability=durability, limits=limits)

    @classmethod
    def drawn(cls, seed: int) -> Config:
        """The configuration of a seed."""
        rng = random.Random(f"configuration {seed}")
        kinds = [kind for kind in KINDS if rng.random() < 0.5] or ["process kill"]
        return cls(
            seed=seed,
            weights={kind: rng.choice([0.3, 1.0, 3.0]) for kind in kinds},
            faults=rng.choice([2, 4, 6, 10, 20]),
            sync=rng.random() < 0.8,
            threads=rng.choice([1, 1, 1, 2, 2, 3]),
            runs=rng.choice([1, 1, 2, 2, 3, 5]),
            limits={
                "threads_idle": rng.choice([0, 1, 2, 100]),
                "threads_running": rng.choice([1, 2, 100]),
                "recovery_batch": rng.choice([1, 2, 256]),
                "group_commits": rng.choice([1, 2, 512]),
                "full_versions_every": rng.choice([1, 3, 64]),
                "value_bytes_whole": random.Random(f"deltas {seed}").choice([0, 512]),
            },
            max_concurrency=rng.choice([None, None, 1, 2]),
            policy=rng.choice(["proceed", "proceed", "panic"]),
        )

    def __str__(self) -> str:
        weights = ", ".join(f"{kind} {weight:g}" for kind, weight in self.weights.items())
        return (
            f"seed {self.seed}: {self.threads} threads x {self.runs} runs, at most {self.faults} faults "
            f"({weights}); sync={self.sync}, policy={self.policy}, max_concurrency={self.max_concurrency}, "
            f"durability={self.durability}, {self.limits}"
        )
