"""What a measurement of coverage says of each file."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import coverage

__all__ = ["branches_of", "files_of"]


def files_of(measured: coverage.Coverage) -> dict[str, dict[str, Any]]:
    """For each measured file, by its name, what coverage's report in JSON has of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        measured.json_report(outfile=str(path))
        files: dict[str, dict[str, Any]] = json.loads(path.read_text())["files"]
    return {Path(name).name: file for name, file in sorted(files.items())}


def branches_of(file: dict[str, Any]) -> str:
    """The branches of a file that were never taken, as `from line->to line`; -1 leaves the function."""
    return ", ".join(f"{a}->{b}" for a, b in file["missing_branches"]) or "none"
