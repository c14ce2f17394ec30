"""The count of Python's instructions a step."""

from __future__ import annotations

from benchmarks.bytecodes import count, main


def test_each_function_of_a_step_is_counted_once_a_step():
    seen = count("memory", 12)
    called = {code.co_qualname: number for code, number in seen.calls.items()}
    assert called["NodeActor.run"] == seen.steps
    assert called["MemoryCheckpointer.commit"] == seen.steps


def test_the_report_begins_with_the_sums(capsys):
    assert main(["--store", "memory", "--nodes", "8", "--top", "2"]) == 0
    first, sums, *rest = capsys.readouterr().out.splitlines()
    assert first == "line, memory:"
    assert sums.split()[1] == "instructions"
    assert len(rest) == 2
