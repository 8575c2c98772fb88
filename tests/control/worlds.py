"""Every simulated world under one name, to compare two policies: what one gains, the other loses.

    cd tests && python -m control.worlds run FILE [WORDS ...]    # plays those whose name has a word
    cd tests && python -m control.worlds run FILE --policy simplest+pace    # by another policy
    cd tests && python -m control.worlds compare BEFORE AFTER    # by how much they differ

The laws (`test_controller_regret`, `test_wrong_beliefs`) say what no policy may lose; this says
what a change of one costs within that. All worlds take five minutes of a core.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from control import simplest as policies
from control.controlled import Controlled
from control.simulator import (
    ALMOST_FLAT,
    CODE,
    EDIT,
    H100,
    MACHINES,
    NOISE,
    PROSE,
    Machine,
    Regime,
    Text,
    plain,
    play,
)
from control.test_controller_regret import TEXTS
from control.test_wrong_beliefs import DIPPED, PROFILES, SPAN, STEEP
from control.test_wrong_beliefs import TEXTS as LONG_TEXTS

from localspec.control.controller import Controller

Figures: TypeAlias = dict[str, float]
"""`speed` over a whole text and `worst` over any thousand tokens, both by plain decoding; `behind`
is the most that an answer was behind, by what it may be."""

SEEDS = (11, 12, 21, 22)
"""Texts of one kind differ by more than policies do: a copy more or less is 4 %."""


def _figures(session: Controlled, moods: Mapping[int, Machine] | None = None) -> Figures:
    """One text, and its worst thousand tokens."""
    mine = session.play().times
    plainly = play(session.machine, session.text, plain, moods=moods).times
    spans = [
        (plainly[first + SPAN] - plainly[first]) / (mine[first + SPAN] - mine[first])
        for first in range(0, len(plainly) - SPAN, 100)
    ]
    return {"speed": plainly[-1] / mine[-1], "worst": min(spans)}


def _text(machine: Machine, regimes: Sequence[Regime]) -> Figures:
    """Several texts of one kind on a machine that was measured."""
    mine = others = 0.0
    for seed in SEEDS:
        words = Text(regimes, seed)
        others += play(machine, words, plain).time
        mine += Controlled(machine, words, seed).play().time
    return {"speed": others / mine}


def _believed(machine: Machine, believed: Machine, regime: Regime) -> Figures:
    """A machine that is taken for another one."""
    return _figures(Controlled(machine, Text([regime], 1), 1, believed=believed))


def _changing(machine: Machine, meanwhile: Machine, regime: Regime) -> Figures:
    """A machine that is another one for a thousand tokens."""
    moods = {1000: meanwhile, 2000: machine}
    return _figures(Controlled(machine, Text([regime], 1), 1, moods=moods), moods)


def _silent(machine: Machine, regime: Regime) -> Figures:
    """A source that drafts nothing any more after a thousand tokens."""
    return _figures(Controlled(machine, Text([regime], 1), 1, silent_from=1000))


def _beside_useless(machine: Machine, regime: Regime, useless: int) -> Figures:
    """Sources that are hardly ever right beside those that are; `speed` is against plain."""
    mine = others = 0.0
    for seed in SEEDS:
        words = Text([regime], seed)
        others += play(machine, words, plain).time
        mine += Controlled(machine, words, seed, useless=useless).play().time
    return {"speed": others / mine}


def _head(machine: Machine, right: float) -> Figures:
    """One guess in every round, right so often."""
    regime = Regime(2000, copy_begins=0.0, accident=right, seen_before=1.0)
    mine = others = 0.0
    for seed in SEEDS:
        words = Text([regime], seed)
        others += play(machine, words, plain).time
        mine += Controlled(machine, words, seed, sources=("lookup",)).play().time
    return {"speed": others / mine}


def _short(machine: Machine, tokens: int, unread: int, regimes: Sequence[Regime]) -> Figures:
    """Forty answers one after another, each with a prompt that the source has not read."""
    controller: Controller | None = None
    mine = others = behind = 0.0
    each = machine.target(1) + machine.host
    for seed in range(40):
        regime = replace(regimes[seed % len(regimes)], tokens=tokens + 40)
        session = Controlled(
            machine,
            Text([regime], seed),
            seed,
            controller=controller,
            unread=unread,
            prefill=30 + seed,
        )
        controller = session.controller
        times = session.play().times
        mine += times[-1]
        others += len(times) * each
        for token, time in enumerate(times, start=1):
            late = machine.row_seconds * (time - token * each)
            allowed = 0.05 + 0.05 * machine.row_seconds * (session.prefill + time)
            behind = max(behind, late / allowed)
    return {"speed": others / mine, "behind": behind}


def _useless() -> dict[str, Callable[[], Figures]]:
    """Those with sources that are of no use."""
    texts = {"prose": PROSE, "code": CODE, "noise": NOISE}
    return {
        f"{name}, {count} useless beside, {text}": partial(_beside_useless, machine, regime, count)
        for (name, machine), (text, regime), count in itertools.product(
            MACHINES.items(), texts.items(), (1, 9)
        )
    }


def worlds() -> dict[str, Callable[[], Figures]]:
    """All of them by name."""
    found: dict[str, Callable[[], Figures]] = {
        f"{machine}, {text}": partial(_text, MACHINES[machine], TEXTS[text])
        for machine, text in itertools.product(MACHINES, TEXTS)
    }
    for text, regime in LONG_TEXTS.items():
        for name, believed in PROFILES.items():
            found[f"a dip {name}, {text}"] = partial(_believed, DIPPED, believed, regime)
        steep = replace(STEEP, curve=ALMOST_FLAT)
        found[f"rows that seemed free, {text}"] = partial(_believed, STEEP, steep, regime)
        for name in ("Q4_0", "GPU", "H100 7B"):
            machine = MACHINES[name]
            slow, dear = machine.slower(2), machine.dearer(1.6)
            found[f"{name} throttled, {text}"] = partial(_changing, machine, slow, regime)
            found[f"{name} busy, {text}"] = partial(_changing, machine, dear, regime)
        for name in ("Q4_0", "GPU", "H100 7B", "H100 1.5B"):
            found[f"{name}, a silent source, {text}"] = partial(_silent, MACHINES[name], regime)
    found |= _useless()
    unknown = replace(H100, changes=(0.0, 0.0), draft_changes=(0.0, 0.0))
    for text, regime in {"prose": PROSE, "noise": NOISE}.items():
        long = replace(regime, tokens=3000)
        found[f"H100 1.5B not measured, {text}"] = partial(_believed, H100, unknown, long)
    for name, machine in MACHINES.items():
        for right in (0.3, 0.45) if max(machine.changes) > 0 else ():
            found[f"{name}, a head right {right:.0%}"] = partial(_head, machine, right)
        found[f"{name}, answers of 14"] = partial(_short, machine, 14, 300, (PROSE, CODE, NOISE))
        found[f"{name}, answers of 120"] = partial(
            _short, machine, 120, 200, (PROSE, NOISE, CODE, EDIT)
        )
    return found


def _played(name: str) -> tuple[str, Figures]:
    return name, worlds()[name]()


def _decide(policy: str) -> None:
    """In a process that plays: by this policy."""
    Controlled.policy = policies.named(policy)


def run(file: Path, words: Sequence[str], policy: str = "today") -> None:
    """Play the worlds whose names have one of these words, all without any; write after each."""
    chosen = [name for name in worlds() if not words or any(word in name for word in words)]
    found: dict[str, Figures] = {}
    with ProcessPoolExecutor(initializer=_decide, initargs=(policy,)) as pool:
        for name, figures in pool.map(_played, chosen):
            found[name] = figures
            file.write_text(json.dumps(found, indent=1), encoding="utf-8")


def compare(before: Mapping[str, Figures], after: Mapping[str, Figures], more: float) -> list[str]:
    """Lines of the worlds whose figures differ by `more`, and the geometric mean of all speeds."""
    lines, logs = [], []
    for name in before.keys() & after.keys():
        logs.append(math.log(after[name]["speed"] / before[name]["speed"]))
        for figure, was in before[name].items():
            now = after[name][figure]
            if figure != "behind" and abs(now / was - 1) > more:
                lines.append(f"{name}: {figure} {was:.3f}, now {now:.3f} ({now / was - 1:+.1%})")
            if figure == "behind" and now > max(1.0, was):
                lines.append(f"{name}: {now:.2f} of what an answer may be behind, was {was:.2f}")
    mean = math.exp(sum(logs) / max(1, len(logs)))
    return [*sorted(lines), f"{len(logs)} worlds, {mean:.4f} of the speed"]


def main() -> None:
    """Play or compare."""
    parser = argparse.ArgumentParser(prog="python -m control.worlds")
    commands = parser.add_subparsers(dest="command", required=True)
    playing = commands.add_parser("run")
    playing.add_argument("file", type=Path)
    playing.add_argument("words", nargs="*")
    playing.add_argument("--policy", default="today", help=policies.HELP)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    comparing.add_argument("--more", type=float, default=0.02)
    asked = parser.parse_args()
    if asked.command == "run":
        run(asked.file, asked.words, asked.policy)
        return
    before, after = (json.loads(each.read_text()) for each in (asked.before, asked.after))
    print("\n".join(compare(before, after, asked.more)))  # noqa: T201 — the report


if __name__ == "__main__":
    main()
