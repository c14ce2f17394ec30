"""Record the golden traces anew, from the `erl` of this machine: `python -m tests.otp.record [TOPIC...]`.

Each scenario runs three times; what differs from run to run is no observation, and is an error here.
With `--ours`, print instead where `supervisors` differs though no difference is marked; with `--expect`,
take its present traces for what is expected where one is: read them in the diff before committing.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from supervisors import StuckError
from tests.otp.interpreter import run
from tests.otp.scenario import FOLDER, Scenario, load, plain_text
from tests.otp.trace import (
    Difference,
    Trace,
    differences,
    faults,
    from_text,
    golden,
    to_text,
    write_differences,
)

__all__ = ["main", "record"]

_RELEASE = (
    'io:format("OTP ~s, erts ~s", [erlang:system_info(otp_release), erlang:system_info(version)]),'
    "halt()."
)


def record(scenarios: list[Scenario], runs: int = 3) -> tuple[str, dict[str, Trace]]:
    """Run `scenarios` on OTP, `runs` times; return the release and the traces.

    Raises:
        ValueError: a scenario's runs differ
    """
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        sources = sorted(str(path) for path in (FOLDER / "erl").glob("*.erl"))
        subprocess.run(["erlc", "-Werror", "-o", folder, *sources], check=True)
        (place / "scenarios.txt").write_text(plain_text(scenarios))
        found = [_run(place) for _ in range(runs)]
    for title, first in found[0].items():
        for other in found[1:]:
            if other[title] != first:
                raise ValueError(
                    f"{title}: two runs differ\n{to_text(first)}\nand\n{to_text(other[title])}"
                )
    command = ["erl", "-noshell", "-eval", _RELEASE]
    release = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return release, found[0]


def _run(place: Path) -> dict[str, Trace]:
    # one scheduler: then the runner can see when everybody waits
    command = ["erl", "+S", "1:1", "-noshell", "-pa", str(place), "-s", "otp_runner", "main"]
    files = [str(place / "scenarios.txt"), str(place / "traces.txt")]
    subprocess.run([*command, "-extra", *files], check=True, timeout=600, cwd=place)
    return from_text((place / "traces.txt").read_text())


def save(scenarios: list[Scenario], release: str, traces: dict[str, Trace]) -> None:
    (FOLDER / "traces" / "RELEASE").write_text(f"{release}\n")
    for topic in sorted({scenario.topic for scenario in scenarios}):
        text = "\n".join(
            f"# {scenario.title}\n{to_text(traces[scenario.title])}"
            for scenario in scenarios
            if scenario.topic == topic
        )
        (FOLDER / "traces" / f"{topic}.txt").write_text(text)


def compare(scenarios: list[Scenario]) -> int:
    """Print the scenarios in which `supervisors` differs unmarked; return how many."""
    expected = golden() | {title: found.trace for title, found in differences().items()}
    return sum(_differs(scenario, expected[scenario.title]) for scenario in scenarios)


def _differs(scenario: Scenario, expected: Trace) -> bool:
    try:
        ours = run(scenario)
    except StuckError as error:
        ours = [("", [str(error)])]
    if ours == expected:
        return False
    print(f"# {scenario.title}\n{to_text(ours)}expected:\n{to_text(expected)}")
    return True


def expect(scenarios: list[Scenario]) -> None:
    """Keep the present traces of the scenarios in which ours is to differ, and is no fault."""
    known = {scenario.title: scenario for scenario in scenarios}
    wrong = faults()
    write_differences(
        {
            title: old if title in wrong else Difference(old.rule, old.why, run(known[title]))
            for title, old in differences().items()
        }
    )


def main() -> None:
    """Record, or compare, the scenarios of the topics that are named, or all."""
    words = sys.argv[1:]
    topics = [word for word in words if not word.startswith("--")]
    scenarios = [s for s in load() if not topics or s.topic in topics]
    if "--expect" in words:
        expect(load())
    elif "--ours" in words:
        print(f"{compare(scenarios)} of {len(scenarios)} differ unmarked")
    else:
        release, traces = record(scenarios)
        save(scenarios, release, traces)
        print(f"{len(scenarios)} scenarios recorded on {release}")


if __name__ == "__main__":
    main()
