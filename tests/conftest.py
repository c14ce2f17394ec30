"""Options of the whole suite.

`--third SEED` keeps a third of the tests, drawn by the seed: what continuous integration runs on other
Pythons than the first.
"""

from __future__ import annotations

import hashlib
import sys

import pytest

from supervisors.kill import Killed


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--third", metavar="SEED", default=None, help="run a third of the tests, drawn by SEED"
    )


@pytest.fixture(scope="session", autouse=True)
def _a_kill_that_python_swallows_is_no_fault():
    """Let pytest not report a `Killed` that landed in a destructor or in a callback of the collector.

    Python can only report such a one; the body is then given up after its grace period
    (docs/design/scheduler.md). Whatever else is lost there stays an error.
    """
    report = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if not isinstance(unraisable.exc_value, Killed):
            report(unraisable)

    sys.unraisablehook = hook
    yield
    sys.unraisablehook = report


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
