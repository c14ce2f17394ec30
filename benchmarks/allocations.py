"""Counts the allocator calls of this process, by a C library that is loaded before the program.

Python has no counter of its own for what was allocated and freed again. So `restart_counted`
compiles a few lines with the system's `cc`, and starts the program anew with them in `LD_PRELOAD`
and with `PYTHONMALLOC=malloc`; what `counter` returns then reads the counter. Objects from the
interpreter's free lists are no allocator calls, so the number is a lower bound.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["counter", "restart_counted"]

_MARK = "BENCHMARKS_ALLOCATION_COUNTER"
_SOURCE = r"""
#define _GNU_SOURCE
#include <stdlib.h>
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
unsigned long benchmarks_allocations;
void *malloc(size_t n) {
  __atomic_add_fetch(&benchmarks_allocations, 1, __ATOMIC_RELAXED);
  return __libc_malloc(n);
}
void *calloc(size_t n, size_t m) {
  __atomic_add_fetch(&benchmarks_allocations, 1, __ATOMIC_RELAXED);
  return __libc_calloc(n, m);
}
void *realloc(void *p, size_t n) {
  __atomic_add_fetch(&benchmarks_allocations, 1, __ATOMIC_RELAXED);
  return __libc_realloc(p, n);
}
"""


def restart_counted(module: str, arguments: list[str]) -> int | None:
    """Run `python -m module arguments` with the counter loaded.

    Returns:
        Its exit code, or None where there is no C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "count.c", Path(folder) / "count.so"
        source.write_text(_SOURCE, encoding="utf-8")
        built = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(source)]
        subprocess.run(built, check=True)
        environment = {
            **os.environ,
            "LD_PRELOAD": str(library),
            "PYTHONMALLOC": "malloc",
            _MARK: str(library),
        }
        command = [sys.executable, "-m", module, *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


def counter() -> Callable[[], int] | None:
    """A function that reads the counter, or None where the program was started without it."""
    library = os.environ.get(_MARK)
    if library is None:
        return None
    value = ctypes.c_ulong.in_dll(ctypes.CDLL(library), "benchmarks_allocations")
    return lambda: int(value.value)
