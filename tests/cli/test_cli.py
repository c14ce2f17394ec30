"""The command line."""

from __future__ import annotations

import importlib
import json
import sys
import tempfile

import msgspec
import pytest
from typer.testing import CliRunner

from beamweaver import START, Graph, cli
from beamweaver.checkpoint import LMDBCheckpointer
from beamweaver.demo import Verdict
from beamweaver.errors import MissingExtra


@pytest.fixture(autouse=True)
def _temporary(tmp_path_factory, monkeypatch):
    """What the demo leaves behind goes where pytest cleans up."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("left")))


def run(*arguments):
    return CliRunner().invoke(cli.load(), list(arguments))


def test_without_arguments_the_commands_are_listed():
    result = run()

    assert "demo" in result.output
    assert "threads" in result.output


def test_the_version_is_printed():
    result = run("--version")

    assert result.exit_code == 0
    assert result.output.startswith("beamweaver ")


@pytest.mark.parametrize("module", ["typer", "rich"])
def test_without_the_extra_the_command_that_installs_it_is_told(module, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("beamweaver.cli._")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.split(".")[0] == module]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, module, None)

    with pytest.raises(MissingExtra, match=r'pip install "beamweaver\[cli\]"') as caught:
        cli.load()

    assert caught.value.module == module


def test_main_without_the_extra_exits_with_2_and_no_traceback(monkeypatch, capsys):
    def missing():
        raise MissingExtra("the command line needs typer")

    monkeypatch.setattr(cli, "load", missing)
    with pytest.raises(SystemExit) as caught:
        cli.main()

    assert caught.value.code == 2
    assert capsys.readouterr().err == "beamweaver: the command line needs typer\n"


def test_a_demo_on_a_store_that_exists_exits_with_2(tmp_path):
    result = run("demo", "--store", str(tmp_path))

    assert result.exit_code == 2
    assert "exists; give a new path" in result.output


def a_verdict(**changes):
    found = Verdict(
        ok=True,
        faults=[],
        files=2,
        indexed=2,
        report_equal=True,
        ledger_lines=2,
        kills_wanted=2,
        kills=[5, 9],
        tasks=12,
        reran={"read": 1},
        seconds=1.0,
        direct_seconds=0.5,
        seed=7,
        report="report.json",
        ledger="ledger.jsonl",
        store=None,
    )
    return msgspec.structs.replace(found, **changes)


def test_a_claim_that_failed_exits_with_1_and_says_which(monkeypatch):
    fault = "task '1' started in life 2, after life 1 acknowledged its result"
    module = importlib.import_module("beamweaver.cli._app")
    monkeypatch.setattr(module, "run_demo", lambda *_: a_verdict(ok=False, faults=[fault]))
    result = run("demo")

    assert result.exit_code == 1
    assert fault in " ".join(result.output.split())
    assert run("demo", "--json").exit_code == 1


def test_claims_that_held_exit_with_0_and_say_where_the_report_is(monkeypatch):
    module = importlib.import_module("beamweaver.cli._app")
    monkeypatch.setattr(module, "run_demo", lambda *_: a_verdict(kills=[5]))
    result = run("demo")

    assert result.exit_code == 0
    assert "report.json" in result.output
    assert "1 of 2 times" in result.output


def test_threads_of_no_store_exit_with_2(tmp_path):
    result = run("threads", str(tmp_path / "none"))

    assert result.exit_code == 2
    assert "there is no store" in result.output


def test_threads_of_something_else_exit_with_2(tmp_path):
    (tmp_path / "file").write_text("not a store")
    result = run("threads", str(tmp_path / "file"))

    assert result.exit_code == 2
    assert "beamweaver threads:" in result.output


def test_an_empty_store_has_no_threads(tmp_path):
    store = LMDBCheckpointer(tmp_path / "store", survives="process-kill")
    store.acquire()
    store.release()
    store.close()
    result = run("threads", str(tmp_path / "store"))

    assert result.exit_code == 0
    assert "thread" in result.output


@pytest.fixture
def kept(tmp_path):
    """The folder of a store with a thread."""
    graph = Graph(name="g").add_node("a", lambda _state: {"n": 1}).add_edge(START, "a")
    store = LMDBCheckpointer(tmp_path / "store", survives="process-kill")
    with graph.compile(checkpointer=store) as made:
        made.invoke({}, thread_id="t")
    store.close()
    return tmp_path / "store"


def test_a_store_that_is_whole_exits_with_0(kept):
    result = run("verify", str(kept))

    assert result.exit_code == 0
    assert result.output.startswith("threads: 1, keys: ")
    assert result.output.endswith(": all is whole\n")


def test_a_store_that_is_damaged_exits_with_1_and_names_the_damage(kept):
    with (kept / "data.mdb").open("r+b") as file:
        file.write(b"x" * 64)
    result = run("verify", str(kept))

    assert result.exit_code == 1
    assert "meta page 0 is damaged" in result.output
    assert result.output.endswith(": the store is damaged\n")


def test_a_store_whose_file_is_empty_is_damaged(kept):
    (kept / "data.mdb").write_bytes(b"")
    result = run("verify", str(kept))

    assert result.exit_code == 1
    assert "is damaged: its file data.mdb has 0 bytes" in result.output


def test_verify_of_no_store_exits_with_2(tmp_path):
    result = run("verify", str(tmp_path))

    assert result.exit_code == 2
    assert "beamweaver verify:" in result.output
    assert "holds no store" in result.output


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_the_demo_with_json_prints_only_json_and_keeps_the_store(tmp_path):
    result = run(
        "demo",
        "--json",
        "--files",
        "5",
        "--kills",
        "1",
        "--seed",
        "1",
        "--store",
        str(tmp_path / "store"),
    )

    assert result.exit_code == 0, result.output
    verdict = json.loads(result.stdout)
    assert (verdict["ok"], verdict["indexed"]) == (True, 5)
    assert "complete" in run("threads", str(tmp_path / "store")).output
