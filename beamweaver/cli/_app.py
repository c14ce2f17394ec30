"""The commands."""

from __future__ import annotations

import importlib.metadata
import secrets
import sys
from pathlib import Path  # noqa: TC003  # typer reads the annotations when it runs
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from beamweaver.cli import _show
from beamweaver.demo import DemoFailed, Options, run_demo

__all__ = ["app"]

app = typer.Typer(
    name="beamweaver",
    help="Durable graphs that run as supervised actors.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        try:
            found = importlib.metadata.version("beamweaver")
        except importlib.metadata.PackageNotFoundError:
            found = "(not installed: run from its sources)"
        typer.echo(f"beamweaver {found}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Durable graphs that run as supervised actors."""


@app.command()
def demo(
    kills: Annotated[int, typer.Option(min=0, help="How often the process is killed.")] = 4,
    seed: Annotated[int | None, typer.Option(help="Draws the moments of the kills.")] = None,
    store: Annotated[Path | None, typer.Option(help="A new path for the store, kept.")] = None,
    files: Annotated[
        int | None, typer.Option(min=1, help="How many files; all by default.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Where the report goes.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the verdict as JSON only.")
    ] = False,
) -> None:
    """Index the installed standard library in a process that is killed again and again.

    Each file is a durable thread. The process is killed by SIGKILL and started again; at the end the
    report must equal that of a run that nothing interrupted, every line of the ledger must be there
    once, and no task with an acknowledged result may have run again. Exit code 1: a claim failed.
    """
    drawn = secrets.randbelow(1_000_000) if seed is None else seed
    options = Options(kills=kills, seed=drawn, files=files, store=store, report=report)
    console = Console(stderr=as_json)
    try:
        with _show.watching(console, silent=as_json) as watch:
            verdict = run_demo(options, watch)
    except DemoFailed as error:
        typer.echo(f"beamweaver demo: {error}", err=True)
        raise typer.Exit(2) from None
    if as_json:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(verdict)).decode() + "\n")
    else:
        _show.verdict(console, verdict)
    raise typer.Exit(0 if verdict.ok else 1)


@app.command()
def threads(
    store: Annotated[Path, typer.Argument(help="The store's folder.")],
    limit: Annotated[int, typer.Option(min=1, help="How many at most.")] = 100,
) -> None:
    """List the threads of a store with their status. Reads only; its owner may run meanwhile."""
    from beamweaver.checkpoint import LMDBCheckpointer  # noqa: PLC0415  # other commands need no lmdb
    from beamweaver.errors import StoreError  # noqa: PLC0415

    if not store.exists():
        typer.echo(f"beamweaver threads: there is no store at {store}", err=True)
        raise typer.Exit(2)
    try:
        found = list(LMDBCheckpointer(store).threads(limit=limit))
    except StoreError as error:
        typer.echo(f"beamweaver threads: {error}", err=True)
        raise typer.Exit(2) from None
    _show.threads(Console(), found, limit)


@app.command()
def verify(store: Annotated[Path, typer.Argument(help="The store's folder.")]) -> None:
    """Read a whole store and name what is damaged. Reads only; its owner may run meanwhile.

    Exit code 1: something is damaged.
    """
    from beamweaver.checkpoint.verify import verify as look_through  # noqa: PLC0415
    from beamweaver.errors import CorruptRecord, StoreError  # noqa: PLC0415

    try:
        found = look_through(store)
    except StoreError as error:
        typer.echo(f"beamweaver verify: {error}", err=True)
        raise typer.Exit(1 if isinstance(error, CorruptRecord) else 2) from None
    for damage in found.damages:
        typer.echo(damage)
    if found.more:
        typer.echo(f"and {found.more} more")
    words = "all is whole" if found.sound else "the store is damaged"
    typer.echo(f"threads: {found.threads}, keys: {found.keys}: {words}")
    raise typer.Exit(0 if found.sound else 1)
