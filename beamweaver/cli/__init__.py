"""The command line: `beamweaver demo`, `beamweaver threads STORE`, `beamweaver verify STORE`.

It needs the extra `cli`: `pip install "beamweaver[cli]"`.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from beamweaver.errors import MissingExtra

if TYPE_CHECKING:
    import typer

__all__ = ["load", "main"]


def load() -> typer.Typer:
    """The command line as a typer application.

    Raises:
        MissingExtra: typer or rich is not installed.
    """
    try:
        from beamweaver.cli._app import app  # noqa: PLC0415  # the extra may be missing
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        if missing not in {"typer", "rich", "click"}:
            raise
        raise MissingExtra(
            f"the command line needs {missing}, which is not installed; "
            'run: pip install "beamweaver[cli]"',
            extra="cli",
            module=missing,
        ) from None
    return app


def main() -> None:
    """Run the command line; without the extra, say how to install it and exit with 2."""
    try:
        app = load()
    except MissingExtra as error:
        print(f"beamweaver: {error}", file=sys.stderr)  # noqa: T201  # nothing better is installed
        raise SystemExit(2) from None
    app()
