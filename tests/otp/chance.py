"""Scenarios drawn by chance, compared with the `erl` of this machine.

`python -m tests.otp.chance COUNT [SEED]` draws COUNT of them, from SEED on, and prints what differs. There
are trees of static supervisors, dynamic supervisors, and processes with links and monitors. Within a step the
order of what is observed is not compared, for much here happens side by side. What is known to differ is
left out: it has scenarios of its own.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable

from supervisors import SupervisorsError
from tests.otp.interpreter import run
from tests.otp.record import record
from tests.otp.scenario import Scenario
from tests.otp.trace import Trace, to_text

__all__ = ["differing", "draw", "main"]

_STRATEGIES = ("one_for_one", "one_for_all", "rest_for_one")
_RESTARTS = ("permanent", "permanent", "transient", "temporary")
_REASONS = ("normal", "shutdown", "shutdown:done", "boom", "boom")


def draw(number: int) -> Scenario:
    """Return the scenario that `number` stands for."""
    chance = random.Random(number)
    kinds: list[Callable[[random.Random], list[str]]] = [_tree, _tree, _pool, _society]
    return Scenario("chance", f"chance {number}", tuple(kinds[number % len(kinds)](chance)))


def _dead(labels: list[str]) -> list[str]:
    """Give each label a process that has ended, so that every step means one."""
    return [step for label in labels for step in (f"process {label}", f"exit {label} normal")]


# Trees


def _tree(chance: random.Random) -> list[str]:
    nested = chance.random() < 0.6
    autos = {name: chance.choice(["never", "any_significant", "all_significant"]) for name in "tm"}
    children = {"top": list("abc")[: chance.randint(1, 3)]}
    lines = [_flags(chance, "top", autos["t"])]
    if nested:
        children["mid"] = list("xyz")[: chance.randint(1, 3)]
        lines.append(_flags(chance, "mid", autos["m"]))
        lines.append(f"child top mid sup=mid {_restart(chance, autos['t'])}")
    alone = not nested and len(children["top"]) == 1
    for supervisor, labels in children.items():
        auto = autos[supervisor[0]]
        lines += [f"child {supervisor} {c} {_child(chance, auto, alone)}" for c in labels]
    known = [*children["top"], *children.get("mid", []), *(["mid"] if nested else [])]
    steps = [_manage(chance, children, nested) for _ in range(chance.randint(3, 9))]
    return [*lines, *_dead([*known, "new"]), "start top", *steps]


def _flags(chance: random.Random, label: str, auto: str) -> str:
    strategy, intensity = chance.choice(_STRATEGIES), chance.choice([0, 1, 2, 3, 5])
    return f"supervisor {label} strategy={strategy} intensity={intensity} auto_shutdown={auto}"


def _restart(chance: random.Random, auto: str) -> str:
    restart = chance.choice(_RESTARTS)
    significant = auto != "never" and restart != "permanent" and chance.random() < 0.5
    return f"restart={restart}" + " significant=yes" * significant


def _child(chance: random.Random, auto: str, alone: bool) -> str:
    later = ["ok"] * 5 + ["error", "ignore"]
    if alone:  # a child that dies at once races with what happens elsewhere in the tree
        later += ["dies:normal", "dies:boom"]
    first = chance.choice(["ok"] * 15 + ["ignore", "error"])
    starts = ["ok", first, *(chance.choice(later) for _ in range(6)), "ok"]  # one is the dead's
    words = [_restart(chance, auto), f"starts={','.join(starts)}"]
    if chance.random() < 0.3:
        words += ["trap=yes", "tells=yes"]
        words += ["ends=raise"] * (chance.random() < 0.3)
    words += ["shutdown=brutal_kill"] * (chance.random() < 0.15)
    return " ".join(words)


def _manage(chance: random.Random, children: dict[str, list[str]], nested: bool) -> str:
    supervisor = chance.choice(list(children))
    labels = children[supervisor] + ["mid"] * (nested and supervisor == "top")
    child = chance.choice(labels)
    verb = chance.choice(
        ["end"] * 9
        + ["terminate_child"] * 3
        + ["restart_child"] * 3
        + ["delete_child", "start_child", "which", "order", "count"]
    )
    if verb == "end":
        return "kill mid" if child == "mid" else _ending(chance, child)
    if verb == "start_child":
        child = chance.choice([*children[supervisor], "new"])
        return f"start_child {supervisor} {child} {_child(chance, 'never', alone=False)}"
    return f"{verb} {supervisor}" + f" {child}" * verb.endswith("child")


def _ending(chance: random.Random, label: str) -> str:
    reason = chance.choice(_REASONS)
    return chance.choice([f"exit {label} {reason}", f"kill {label}", f"raise {label} boom"])


# Pools


def _pool(chance: random.Random) -> list[str]:
    labels = list("abcd")[: chance.randint(1, 4)]
    ends_by_process = chance.random() < 0.5
    restart = "permanent" if ends_by_process else chance.choice(_RESTARTS)
    later = ["ok"] * 4 + ([] if ends_by_process else ["error"])
    starts = ["ok", "ok", *(chance.choice(later) for _ in range(5)), "ok"]
    template = f"template pool restart={restart} starts={','.join(starts)}"
    steps = []
    for _ in range(chance.randint(4, 12)):
        label = chance.choice(labels)
        choices = [f"start_child pool {label}", _ending(chance, label), _ending(chance, label)]
        choices += ["which pool", "count pool"]
        steps.append(chance.choice(choices))
    if ends_by_process:  # the last step: who has ended is answered otherwise here
        steps.append(f"start_child pool {labels[0]}")
        steps.append(f"terminate_child pool @{labels[0]}")
    intensity = chance.choice([0, 1, 3, 20])
    return [f"dynamic pool intensity={intensity}", template, *_dead(labels), "start pool", *steps]


# Societies


def _society(chance: random.Random) -> list[str]:
    labels = list("abcde")[: chance.randint(2, 5)]
    lines = [f"process {c} trap={chance.choice(['yes', 'no', 'no'])}" for c in labels]
    for token in range(chance.randint(4, 14)):
        one, other = chance.sample(labels, 2)
        reason = chance.choice([*_REASONS, "kill"])
        lines.append(
            chance.choice(
                [
                    f"link {one} {other}",
                    f"link {one} {other}",
                    f"unlink {one} {other}",
                    f"monitor {one} {other} m{token}",
                    f"monitor {one} {other} m{token}",
                    f"signal {one} {other} {reason}",
                    _ending(chance, one),
                    f"trap {one} {chance.choice(['on', 'off'])}",
                    f"call {one} {other} echo hello",
                ]
            )
        )
    return lines


# Comparing


def _determined(trace: Trace) -> Trace:
    return [(step, sorted(_settled(lines))) for step, lines in trace]


def _settled(lines: list[str]) -> list[str]:
    # whether one that ends in this step still sees something is chance
    ended = {line.split()[1] for line in lines if line.startswith("down ")}
    # a link to a dead process signals noproc; OTP raises it in one that traps no exits
    kept = (line for line in lines if line.partition(":")[0] not in ended)
    return [line.replace("error:noproc", "noproc") for line in kept]


def differing(numbers: range, seeds: range) -> list[str]:
    """Return what differs, in words, of the scenarios with these numbers."""
    scenarios = [draw(number) for number in numbers]
    _, expected = record(scenarios, runs=1)
    found = []
    for scenario in scenarios:
        theirs = _determined(expected[scenario.title])
        for seed in seeds:
            try:
                ours = _determined(run(scenario, seed))
            except SupervisorsError as error:
                ours = [("", [repr(error)])]
            if ours != theirs:
                lines = "\n".join(scenario.lines)
                found.append(
                    f"# {scenario.title}, seed {seed}\n{lines}\n"
                    f"--- ours\n{to_text(ours)}--- OTP\n{to_text(theirs)}"
                )
                break
    return found


def main() -> None:
    """Compare as many scenarios as the first argument says, from the seed of the second."""
    count = int(sys.argv[1])
    start = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    found = differing(range(start, start + count), range(3))
    print(*found, sep="\n")
    print(f"{len(found)} of {count} differ")


if __name__ == "__main__":
    main()
