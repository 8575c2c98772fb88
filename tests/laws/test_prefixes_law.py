"""An answer behind a restored prefix is the answer behind a prefix that was read.

Bit by bit, on models of every kind of memory: cells, cells behind a sliding window, states, both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import kinds
import msgspec
import numpy as np
import pytest
import recurrent
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from worker_peer import GREEDY, Script

from localspec.config import Cache, Config, Engine, Placement
from localspec.engine.kv.rollback import MOST_COPIES, dispensable
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.prefixes import identity
from localspec.types import Floats, Row, SamplingParams, SpeculationParams
from localspec.wire.messages import Delta, Finished, Generate, Load, Message, Started
from localspec.wire.values import TokenLogprob
from localspec.worker import assemble

KINDS: dict[str, Callable[[Path], Path]] = {
    "attention": tiny.build,
    "sliding": kinds.sliding,
    "recurrent": recurrent.mamba,
    "hybrid": recurrent.lfm2,
}
ALONE = Placement(threads=1)
TEXT = np.random.default_rng(3).integers(32, 120, 400).tolist()
CHAINS = {
    "greedy": GREEDY,
    "seeded": SamplingParams(temperature=0.9, seed=7),
}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One model of each kind of memory."""
    return KINDS[request.param](tmp_path_factory.mktemp("model") / f"{request.param}.gguf")


@pytest.fixture(scope="module", params=[True, False], ids=["streams", "shared"])
def memory(request: pytest.FixtureRequest, model: Path) -> Iterator[Context]:
    """Its memory for three sessions."""
    weights = Model.load(model, ALONE)
    found = Context.open(weights, ALONE, slots=3, context=512, rows=64, streams=request.param)
    found.find_rollback()
    found.keep_copies(1 << 20)
    yield found
    found.close()
    weights.close()


def read(memory: Context, slot: int, start: int, end: int) -> Floats:
    """Logits of the last rows of a part of the text, read in one class of forwards."""
    logits: list[Floats] = []
    for first in range(start, end, 16):
        rows = range(first, min(first + 16, end))
        logits.append(memory.decode([Row(TEXT[at], at, slot, True) for at in rows]).logits.copy())
    return np.concatenate(logits)


@settings(max_examples=25, deadline=None)
@given(
    stops=st.lists(st.integers(2, 24), min_size=1, max_size=4, unique=True),
    back=st.integers(1, 200),
    other=st.integers(0, 60),
)
def test_a_copy_is_what_was_read_at_every_length(
    memory: Context, stops: list[int], back: int, other: int
) -> None:
    """Taken over by another slot, cut to any length and read on: the bits of the slot it is of."""
    for slot in range(3):
        memory.truncate(slot, 0)
    at = 0
    for stop in sorted(stops):
        read(memory, 0, at, 8 * stop)
        at = 8 * stop
        memory.checkpoint(0, lasting=True)
    read(memory, 0, at, 200)
    if other:
        read(memory, 2, 0, other)  # another session's cells lie between
    stored = memory.stored(0)
    memory.put_back(1, stored)
    assert memory.held[1] == 200
    ends = [memory.truncate(slot, back) for slot in (0, 1)]
    assert ends[0] == ends[1]
    assert ends[0] == (
        back
        if memory.rollback == "trim" or back == 200
        else max([8 * stop for stop in stops if 8 * stop <= back], default=0)
    )
    assert np.array_equal(read(memory, 0, ends[0], 216), read(memory, 1, ends[1], 216))


# --- over the end of a process --------------------------------------------------------------------


def command(model: Path, **engine: Any) -> Load:
    """Loads it strictly."""
    fields: dict[str, Any] = {"slots": 2, "context": 768, "exactness": "strict", "prefill_rows": 32}
    config = Config(engine=Engine(draft=ALONE, **{"target": ALONE, **fields, **engine}))
    return Load("tiny", str(model), None, config)


def asked(id_: str, tokens: list[int], client: str = "c", **fields: Any) -> Generate:
    """A completion with the likelihood of each token."""
    defaults: dict[str, Any] = {"max_tokens": 24, "sampling": GREEDY, "ignore_eos": True}
    return Generate(
        id=id_,
        endpoint="completion",
        client=client,
        prompt_tokens=tokens,
        speculation=SpeculationParams(),
        logprobs=3,
        **{**defaults, **fields},
    )


class Said:
    """The events of one request."""

    def __init__(self, script: Script, id_: str) -> None:
        self.cached = script.all(Started, id_)[0].cached_tokens
        self.last = script.all(Finished, id_)[0]
        self.tokens = [token for delta in script.all(Delta, id_) for token in delta.tokens]
        self.logprobs: list[TokenLogprob] = [
            each for delta in script.all(Delta, id_) for each in delta.logprobs
        ]

    @property
    def answer(self) -> tuple[list[int], list[TokenLogprob]]:
        """All that could differ."""
        return self.tokens, self.logprobs


def served(load: Load, *requests: Generate) -> list[Said]:
    """Load, answer one after the other, and leave."""
    identity.learn([Path(load.target_path)])  # which a worker does beside its first requests
    with assemble.load(load, lambda *_: None) as loaded:
        queue = list(requests)
        script = Script(
            [queue.pop(0)],
            lambda event: [queue.pop(0)] if isinstance(event, Finished) and queue else [],
        ).run(loaded)
    return [Said(script, request.id) for request in requests]


def near(model: Path, prompt: list[int]) -> range:
    """How much of a prompt that was read is not read again: states go back to a copy."""
    end = len(prompt)
    return range(end - 1, end) if model.stem in {"attention", "sliding"} else range(end - 65, end)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without anything kept."""
    for name in ("XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return tmp_path


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("chain", CHAINS)
def test_after_a_restart_the_same_bits(model: Path, chain: str) -> None:
    """The same question, an answer wanted anew and the next turn: read once, said the same."""
    load = command(model)
    prompt = TEXT[:300]
    (first,) = served(load, asked("a", prompt, sampling=CHAINS[chain]))
    assert first.cached == 0
    longer = [*prompt, *first.tokens, *TEXT[:40]]
    again, turn = served(
        load,
        asked("b", prompt, sampling=CHAINS[chain]),
        asked("c", longer, sampling=CHAINS[chain]),
    )
    assert again.cached in near(model, prompt)
    assert again.last.timings.cache_disk_n == again.cached
    assert again.answer == first.answer
    assert turn.cached >= len(prompt) + len(first.tokens) - 1
    (anew,) = served(load, asked("d", longer, sampling=CHAINS[chain], reuse=False))
    assert anew.cached == 0
    assert turn.answer == anew.answer


@pytest.mark.usefixtures("home")
def test_conversations_that_lost_their_slot_come_back(model: Path) -> None:
    """Four of them in two slots, twice around: each prompt is read once."""
    prompts = [[*TEXT[start : start + 150]] for start in (0, 50, 100, 150)]
    said = served(command(model), *(asked(f"{n}", prompts[n % 4]) for n in range(8)))
    for first, second in zip(said[:4], said[4:], strict=True):
        assert first.cached == 0
        assert second.cached in near(model, prompts[0])
        timings = second.last.timings
        assert timings.cache_memory_n + timings.cache_disk_n == second.cached
        assert second.answer == first.answer


@pytest.mark.usefixtures("home")
def test_nothing_is_found_by_others(model: Path) -> None:
    """By another client, another model under the same name, or another class of memory."""
    prompt = TEXT[:200]
    (first,) = served(command(model), asked("a", prompt))
    (other,) = served(command(model), asked("b", prompt, client="other"))
    assert (other.cached, other.answer) == (0, first.answer)
    for load in (
        command(model, target=Placement(threads=1, flash_attention="off")),
        command(model, exactness="standard"),
    ):
        assert served(load, asked("c", prompt))[0].cached == 0
    bits = bytearray(model.read_bytes())
    bits[-5] ^= 1  # of a weight
    changed = model.with_name(f"changed-{model.name}")
    changed.write_bytes(bits)
    assert served(command(changed), asked("d", prompt))[0].cached == 0
    same = model.with_name(f"same-{model.name}")
    same.write_bytes(model.read_bytes())
    assert identity.learn([same]) is not None  # as its worker would, beside the first request
    assert served(command(same), asked("e", prompt))[0].cached in near(model, prompt)


@pytest.mark.parametrize("settings", [Cache(0, 0), Cache(0, -1), Cache(-1, 0)])
def test_what_is_switched_off_keeps_nothing(model: Path, settings: Cache, home: Path) -> None:
    """In memory, on disk, or anywhere."""
    load = command(model)
    config = Config(engine=load.config.engine, cache=settings)
    load = Load(load.model, load.target_path, None, config)
    prompts = [[*TEXT[start : start + 150]] for start in (0, 50, 100)]
    said = served(load, *(asked(f"{n}", prompts[n % 3]) for n in range(4)))
    assert said[3].cached in ([0] if settings == Cache(0, 0) else near(model, prompts[0]))
    assert said[3].answer == said[0].answer
    on_disk = [*(home / "XDG_CACHE_HOME").rglob("*.prefix")]
    assert bool(on_disk) == bool(settings.disk_bytes)
    for path in on_disk:
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700


# --- copies of states -----------------------------------------------------------------------------


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=60, unique=True))
def test_of_many_copies_the_ends_stay_and_gaps_double(lengths: list[int]) -> None:
    """The first and the latest are kept, and of others those near the end."""
    kept: list[int] = []
    for length in sorted(lengths):
        if len(kept) == MOST_COPIES:
            gone = kept.pop(dispensable(kept))
            assert gone not in (lengths and (min(lengths), kept[-1]))
        kept.append(length)
    assert kept[0] == min(lengths)
    assert kept[-1] == max(lengths)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_an_edited_turn_reads_from_the_last_border(kind: str, tmp_path: Path) -> None:
    """Another last message, the answer anew, and a branch farther back: read from a near copy."""
    load = command(KINDS[kind](tmp_path / "model.gguf"), context=4096)
    turns = [TEXT[:120], TEXT[120:200], TEXT[200:300]]
    text = turns[0]
    (one,) = served(load, asked("a", text))
    second = [*text, *one.tokens, *turns[1]]
    (two,) = served(load, asked("b", second))
    third = [*second, *two.tokens, *turns[2]]
    border = len(second) + len(two.tokens) - 1
    edited = [*third[: border + 1], *reversed(turns[2])]
    branch = [*second[: len(text) + len(one.tokens)], *reversed(turns[1])]
    said = served(
        load,
        asked("c", third),
        asked("d", third),
        asked("e", edited),
        asked("f", branch),
    )
    assert said[0].cached == border
    assert said[1].cached >= len(third) - 65
    assert said[2].cached >= border - 1
    assert said[3].cached >= len(text)
    for request, found in (("d", third), ("e", edited), ("f", branch)):
        (anew,) = served(load, asked(request, found, reuse=False))
        assert said["cdef".index(request)].answer == anew.answer


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("kind", ["recurrent", "hybrid"])
def test_an_edited_message_of_a_chat_that_was_read_at_once(kind: str, tmp_path: Path) -> None:
    """The whole conversation came cold; another last question is read from the turn's border."""
    load = command(KINDS[kind](tmp_path / "model.gguf"), context=4096)
    talk = [
        Message("user" if turn % 2 == 0 else "assistant", "abc def " * (20 + 3 * turn))
        for turn in range(5)
    ]
    edited = [*talk[:-1], Message("user", "something else " * 20)]

    def chat(id_: str, messages: list[Message], **fields: Any) -> Generate:
        asked_ = asked(id_, [], **fields)
        return msgspec.structs.replace(
            asked_, endpoint="chat", messages=messages, prompt_tokens=None
        )

    first, second = served(load, chat("a", talk), chat("b", edited))
    question = 8 * (20 + 12)
    assert first.cached == 0
    assert second.cached > first.last.usage.prompt_tokens - question - 64
    (anew,) = served(load, chat("c", edited, reuse=False))
    assert (anew.cached, anew.answer) == (0, second.answer)
