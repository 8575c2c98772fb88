"""A feature head computes its maps on the states that the target really had."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest
import tiny
from laws.engine_harness import CONTEXT, PROMPTS, ROWS, SLOTS, Harness, finish, output, taught
from laws.policies import FixedDepth

from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.engine.replay import Script, replay
from localspec.engine.sampling import Sampler
from localspec.engine.speculation.agreement import agreement
from localspec.engine.speculation.head import Head
from localspec.engine.speculation.head_training import TrainingText, learned
from localspec.engine.speculation.states import commit
from localspec.types import (
    Draft,
    DraftRequest,
    Floats,
    Proposing,
    Row,
    SamplingParams,
    Signal,
    Token,
)
from localspec.worker import heads

GREEDY = SamplingParams(temperature=0.0)


def _always(_signals: Sequence[Signal]) -> bool:
    return True


class Watcher:
    """Drafts the tokens it is given, some of them wrong, and keeps what it is shown."""

    name = "watcher"
    free = True
    pending = 0

    def __init__(self, answer: Sequence[Token]) -> None:
        self._answer = answer
        self.seen: list[tuple[int, Floats]] = []
        self._length = 0

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> Watcher:
        """It is its own session."""
        del slot, prompt, sampler, prediction
        return self

    def commit(self, tokens: Sequence[Token]) -> None:
        """So much is known."""
        self._length += len(tokens)

    def watch(self, state: Floats) -> None:
        """Of the last token."""
        self.seen.append((self._length, state.copy()))

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """The next tokens; each fifth is another one."""
        ahead = self._answer[self._length : self._length + requests[0].budget]
        tokens = [
            token ^ 1 if (self._length + place) % 5 == 4 else token
            for place, token in enumerate(ahead)
        ]
        return [Draft.chain(tokens, [Signal(self.name, 0, 0.5)] * len(tokens))]

    def close(self) -> None:
        """Nothing is kept."""


def _states(harness: Harness, tokens: Sequence[Token]) -> list[Floats]:
    """States of plain decoding of a text, one row at a time."""
    found = []
    harness.memory.truncate(0, 0)
    for at, token in enumerate(tokens):
        states = harness.memory.decode([Row(token, at, 0, wants_logits=True)]).states
        assert states is not None
        found.append(states[0].copy())
    harness.memory.truncate(0, 0)
    return found


@pytest.mark.parametrize("depth", [0, 1, 3, 6])
def test_a_drafter_is_shown_the_state_that_the_last_token_came_of(
    harness: Harness, depth: int
) -> None:
    """Bit for bit that of plain decoding, after any number of accepted nodes."""
    request = harness.request(PROMPTS[0], GREEDY)
    (plain,) = finish(harness.engine({}, FixedDepth(0)), [request])
    answer = output(plain)
    harness.memory.show()
    states = _states(harness, [*request.prompt, *answer])
    watcher = Watcher(answer)

    (session,) = finish(harness.engine({"watcher": watcher}, FixedDepth(depth)), [request])

    assert output(session) == answer
    assert len(watcher.seen) > len(answer) / (depth + 2)
    for length, state in watcher.seen:
        expected = states[len(request.prompt) + length - 2]
        assert np.array_equal(state, expected)
    assert {length for length, _ in watcher.seen} != {*range(1, 1 + len(answer))} or depth == 0


def test_showing_states_changes_no_bit_of_logits(harness: Harness) -> None:
    """Of one row and of several, with rows that want no logits and without."""
    rows = [Row(65 + at, at, 0, wants_logits=True) for at in range(5)]
    mixed = [*rows[:3], *(Row(row.token, row.position, 0, wants_logits=False) for row in rows[3:])]
    harness.memory.show()
    hiding = Context.open(
        harness.target, Placement(threads=1), slots=SLOTS, context=CONTEXT, rows=ROWS, streams=True
    )
    found: dict[Context, list[Floats]] = {harness.memory: [], hiding: []}
    for context, logits in found.items():
        for batch in (rows, mixed):
            context.truncate(0, 0)
            output = context.decode(batch)
            logits.append(output.logits.copy())
            shown = ours.states or batch is rows
            assert (output.states is not None) == (context is harness.memory and shown)
        context.truncate(0, 0)
    hiding.close()

    assert all(np.array_equal(*pair) for pair in zip(*found.values(), strict=True))


def test_a_head_equals_numpy(harness: Harness) -> None:
    """Its prediction equals numpy's from the same files, also of a state that it predicted."""
    head = harness.head()
    target = {tensor.name: tensor for tensor in gguf.GGUFReader(harness.path).tensors}
    (file,) = (harness.path.parent / f"heads of {harness.path.stem}").glob("*.gguf")
    maps = {tensor.name: tensor for tensor in gguf.GGUFReader(file).tensors}
    numbers = {
        name: gguf.dequantize(tensor.data, tensor.tensor_type)
        for name, tensor in (target | maps).items()
    }
    assert isinstance(head, Head)
    words = head.words
    rows = numbers["output.weight" if "output.weight" in numbers else "token_embd.weight"][words]
    (state, *_) = _states(
        harness, harness.target.tokenize("hello", add_special=True, parse_special=True)
    )
    token = 70

    for _ in range(3):
        foreseen = head.predict(state, token)
        expected = numbers["state.weight"] @ state + numbers["bias"]
        expected += numbers["token.weight"] @ numbers["token_embd.weight"][token]
        logits = rows @ expected
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()

        close = np.abs(foreseen.state - expected).max() / np.abs(expected).max()
        assert close < 0.02  # activations are quantized to eight bits
        assert chances[list(words).index(foreseen.token)] > 0.8 * chances.max()
        state, token = foreseen.state, foreseen.token
    head.close()


def test_a_head_drafts_right_tokens_of_its_target(harness: Harness) -> None:
    """More of them than chance would: of some 350 tokens."""
    drafted = accepted = 0
    for prompt in PROMPTS:
        engine = harness.engine(harness.drafters("feature_head"), FixedDepth(2))
        (session,) = finish(engine, [harness.request(prompt, GREEDY)])
        drafted += session.meter.drafted
        accepted += session.meter.accepted

    assert drafted > 40
    assert accepted > drafted / 10


def test_a_replay_has_the_drafts_of_a_head(harness: Harness) -> None:
    """Equal to a head led along the text by hand with the states of plain decoding."""
    request = harness.request(PROMPTS[2], GREEDY)
    (plain,) = finish(harness.engine({}, FixedDepth(0)), [request])
    text = output(plain)
    drafters = harness.drafters("feature_head")
    states = _states(harness, [*request.prompt, *text])[len(request.prompt) - 1 :]
    session = drafters["feature_head"].open(0, request.prompt, Sampler(GREEDY))
    survives = []
    for place, token in enumerate(text):
        (draft,) = drafters["feature_head"].propose([DraftRequest(session, Draft(), 3, _always)])
        survives.append(agreement(draft, text[place:]))
        commit(session, [token], states[place].astype(np.float16).astype(np.float32))

    script = Script("someone", request.prompt, [], text, None, max_draft=3)
    work = replay(harness.engine(drafters, FixedDepth(0)), script, lambda signal: signal.prior)
    while True:
        try:
            next(work)
        except StopIteration as done:
            reading = done.value
            break

    assert reading.traces["feature_head"].survives == survives
    assert sum(survives) > 0


def test_nothing_is_drafted_before_a_state_was_seen(harness: Harness) -> None:
    """Neither at first nor after a token of which no state was shown; after an end neither."""
    (drafter,) = harness.drafters("feature_head").values()
    session = drafter.open(0, [65, 66], Sampler(GREEDY))
    request = DraftRequest(session, Draft(), 4, _always)
    (state, *_) = _states(harness, [65])

    assert drafter.propose([request]) == [Draft()]
    session.commit([67])
    assert drafter.propose([request]) == [Draft()]
    session.watch(state)  # type: ignore[attr-defined]
    (draft,) = drafter.propose([request])
    assert draft.tokens
    assert drafter.propose([request]) == [draft]
    far = Draft.chain([65] * 4, [Signal("x", 0, 0.5)] * 4)
    assert drafter.propose([DraftRequest(session, far, 4, _always)]) == [Draft()]
    assert drafter.propose([request]) == [draft]
    session.commit(list(draft.tokens))
    assert drafter.propose([request]) == [Draft()]
    drafter.close()


@pytest.mark.parametrize(
    ("name", "value"),
    [("state.weight", "width"), ("words", "outside"), ("words", "none"), ("key", "another")],
)
def test_a_head_that_does_not_fit_is_left_out(
    harness: Harness, tmp_path: Path, name: str, value: str
) -> None:
    """Another width, words that do not exist or none, another model's."""
    narrow = tiny.build(tmp_path / "narrow.gguf", width=32)
    target = heads.File.open(harness.path)
    width = 32 if value == "width" else 64
    words = {"outside": [0, 1 << 20], "none": []}.get(value, [1, 2, 3])
    key = "0" * 64 if name == "key" else heads.key(target)
    _write(tmp_path / "heads" / "head.gguf", width=width, words=words, key=key)

    assert heads.find(harness.path, tmp_path / "heads") is None
    assert heads.find(narrow, tmp_path / "heads") is None
    _write(tmp_path / "heads" / "later.gguf", width=64, words=[1, 2, 3], key=heads.key(target))
    found = heads.find(harness.path, tmp_path / "nowhere", tmp_path / "heads")
    assert found is not None
    found.close()


@pytest.mark.parametrize("kept", [0, 3, 100, 900])
def test_a_broken_head_is_left_out(harness: Harness, tmp_path: Path, kept: int) -> None:
    """A file that ends too early, anywhere."""
    whole = taught(harness.target, harness.path, tokens=64)
    assert len(whole) > kept
    (tmp_path / "head.gguf").write_bytes(whole[:kept])

    assert heads.find(harness.path, tmp_path) is None


def test_a_linear_law_is_learned() -> None:
    """Of states that follow one exactly; cross-entropy does not lose what least squares found."""
    random = np.random.default_rng(0)
    width, count, words = 32, 3000, 40
    by_state, by_token = random.normal(size=(2, width, width)) / (2 * np.sqrt(width))
    embeddings = random.normal(size=(100, width)).astype(np.float32)
    came = random.integers(100, size=count)
    states = np.zeros((count, width), np.float32)
    for place in range(1, count):
        states[place] = by_state @ states[place - 1] + by_token @ embeddings[came[place - 1]] + 0.1
    rows = random.normal(size=(words, width)).astype(np.float32)
    said = (states @ rows.T).argmax(axis=1)
    hidden = np.where(np.arange(count) % 10, said, -1)
    known = np.arange(count - 1)
    lesson = TrainingText(states.astype(np.float16), came, hidden, known, embeddings, rows)

    for epochs in (0, 2):
        found = learned(lesson, epochs=epochs)
        again = states @ found.state.T + embeddings[came] @ found.token.T + found.bias
        assert ((again @ rows.T).argmax(axis=1)[:-1] == said[1:]).mean() > 0.95


def _write(path: Path, *, width: int, words: list[int], key: str) -> None:
    path.parent.mkdir(exist_ok=True)
    writer = gguf.GGUFWriter(path, heads.KIND)
    writer.add_string(heads.KEY, key)
    writer.add_array(heads.WORDS, words)
    for name in ("state.weight", "token.weight"):
        data = gguf.quantize(np.zeros((width, width), np.float32), gguf.GGMLQuantizationType.Q4_0)
        writer.add_tensor(name, data, raw_dtype=gguf.GGMLQuantizationType.Q4_0)
    writer.add_tensor("bias", np.zeros(width, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
