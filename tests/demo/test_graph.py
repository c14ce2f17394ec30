"""The demo's graph, step by step and without a runtime."""

from __future__ import annotations

from types import SimpleNamespace

from beamweaver.demo.graph import TASKS_A_FILE, FileState, declare
from beamweaver.demo.index import KINDS, direct_report
from beamweaver.demo.ledger import Ledger, read_ledger
from beamweaver.graph import MISSING, Graph, call_node, normalize

SOURCE = 'import os\n\nclass A:\n    "Doc."\n    def f(self): pass\n'


def finish(graph, state, name, ctx=None, overlay=()):
    node = graph.nodes[name]
    result = normalize(graph, node, call_node(node, {**state, **dict(overlay)}, ctx))
    for key, value, _ in result.writes:
        channel = graph.channel(key)
        state[key] = channel.fold(state.get(key, channel.initial()), [value])
    assert MISSING not in state.values()
    return result


def test_a_thread_runs_six_tasks_and_says_of_its_file_what_a_direct_run_says(tmp_path):
    (tmp_path / "m.py").write_text(SOURCE)
    ledger = Ledger(tmp_path / "ledger")
    graph = declare(Graph(FileState, name="index"), tmp_path, ledger).compile()
    state = {"path": "m.py"}
    finish(graph, state, "read")
    sends = finish(graph, state, "parse").sends
    for send in sends:
        finish(graph, state, send.node, overlay=send.update)
    for _ in range(2):
        finish(graph, state, "record", SimpleNamespace(idempotency_key="k"))

    assert [send.update for send in sends] == [{"kind": kind} for kind in KINDS]
    assert 3 + len(sends) == TASKS_A_FILE
    assert state["entry"] == direct_report(tmp_path, ["m.py"])["index"]["m.py"]
    assert [line["path"] for line in read_ledger(tmp_path / "ledger")] == ["m.py"]
    ledger.close()
