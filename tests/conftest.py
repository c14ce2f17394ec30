"""Options of the whole suite.

`--third SEED` keeps a third of the tests, drawn by the seed: what continuous integration runs on other
Pythons than the first.
"""

from __future__ import annotations

import hashlib

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--third", metavar="SEED", default=None, help="run a third of the tests, drawn by SEED"
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("--third")
    return None if seed is None else f"a third of the tests, drawn by seed {seed}"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--third")
    if seed is None:
        return
    kept, left_out = [], []
    for item in items:
        drawn = hashlib.blake2b(f"{seed}:{item.nodeid}".encode(), digest_size=4).digest()
        (kept if int.from_bytes(drawn) % 3 == 0 else left_out).append(item)
    config.hook.pytest_deselected(items=left_out)
    items[:] = kept
