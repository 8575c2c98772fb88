"""Infills through a real worker: prompts, deadlines, reuse while typing, prompts in common."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from msgspec.structs import replace
from worker.test_resume import same
from worker_peer import Files, Heard, Worker, load

from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Replay, Replayed
from localspec.wire.values import Snippet

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
BEFORE = "def add(a, b):\n    return a + b\n\n" * 5
AFTER = "\n\nsay(add(1, 2))\n"
BIAS = {10: 70.0} | dict.fromkeys(range(97, 123), 60.0)
LINES = SamplingParams(8.0, top_k=0, top_p=1.0, min_p=0.0, seed=1, logit_bias=BIAS)
"""A random model writes letters, and lines of about ten."""


@pytest.fixture(scope="module", params=[True, False], ids=["strict", "standard"])
def worker(
    request: pytest.FixtureRequest, files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Worker]:
    """A worker with a model that fills in, in one cache and with a stream for each slot."""
    folder = tmp_path_factory.mktemp("fim")
    target = tiny.build(folder / "target.gguf", specials=MARKS)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.2, specials=MARKS)
    worker = Worker(folder)
    exactness = "strict" if request.param else "standard"
    pair = Files(target, draft, files.stranger)
    worker.send(load(pair, context=1024, slots=3, exactness=exactness))
    worker.until_ready()
    yield worker
    worker.close()


def fill(worker: Worker, before: str = BEFORE, **fields: Any) -> Heard:
    """An infill between two texts."""
    return worker.one(before, **{"endpoint": "infill", "suffix": AFTER, **fields})


def cached(heard: Heard) -> int:
    """Tokens of the prompt that were not read again."""
    return heard.finished.usage.cached_tokens


def test_an_infill_reads_both_sides_and_other_files(worker: Worker) -> None:
    """Its prompt is as long as all its parts and the tokens around them."""
    alone = fill(worker).finished.usage.prompt_tokens
    assert alone == fill(worker, suffix="").finished.usage.prompt_tokens + len(AFTER)
    extra = [Snippet("import add", "a.py")]
    names = len("myproject\na.py\nfilename\nimport add") + 3
    assert fill(worker, extra=extra).finished.usage.prompt_tokens == alone + names
    assert fill(worker, begun="xy").finished.usage.prompt_tokens == alone + 2


def test_the_typed_text_gets_no_leading_blank(fresh: Worker, tmp_path: Path) -> None:
    """With SentencePiece, which adds one: the half-typed word is kept anywhere on its line."""
    target = tiny.build(tmp_path / "pieces.gguf", specials=MARKS, sentencepiece=True)
    fresh.send(replace(load(Files(target, target, target)), draft_path=None))
    fresh.until_ready()
    around = fill(fresh).finished.usage.prompt_tokens
    for begun, read, word, told in (
        ("ret", 0, "return", "urn"),
        ("    ret", 2, "▁return", "urn"),
        ("x = ret", 3, "▁return", "urn"),
        ("(ret", 1, "return", "urn"),
        ("x ", 1, "▁return", "return"),
        ("été", 5, "return", "return"),
    ):
        bias = {tiny.SENTENCEPIECES.index(word): 100.0}
        sampling = SamplingParams(temperature=0, logit_bias=bias)
        heard = fill(fresh, begun=begun, sampling=sampling, max_tokens=1)
        assert (heard.text, heard.finished.usage.prompt_tokens) == (told, around + read), begun


def test_a_model_without_infill_tokens_refuses(fresh: Worker, files: Files) -> None:
    """Instead of a prompt with words that it was not trained on."""
    fresh.send(replace(load(files), draft_path=None))
    fresh.until_ready()
    assert fill(fresh).failed.param == "suffix"


def test_a_change_near_the_end_reads_only_the_end(worker: Worker) -> None:
    """For any tokens at the border; the answer equals that of a new prompt."""
    text = BEFORE + "def sub(the, he):\n    return the"
    fill(worker, text)
    for longer in (text + " - ", text + " - he", text[:-1], text + "in"):
        again = fill(worker, longer)
        assert cached(again) >= again.finished.usage.prompt_tokens - 16
        alone = fill(worker, longer, client=f"alone {len(longer)}")
        assert cached(alone) == 0
        assert alone.text == again.text or worker.ready.exactness != "strict"


def test_the_deadline_ends_an_answer_that_has_a_line(worker: Worker) -> None:
    """With what there is; before it has one it goes on."""
    common: dict[str, Any] = {"sampling": LINES, "max_tokens": 200}
    late = fill(worker, predict_seconds=0.0, **common)
    whole = fill(worker, **common)
    assert whole.text.startswith(late.text)
    assert "\n" in late.text
    assert len(late.text) < len(whole.text)
    assert late.finished.reason == "length"


def test_a_line_that_leaves_the_block_ends_it(worker: Worker) -> None:
    """A random model never indents, so its second line is the end."""
    heard = fill(worker, sampling=LINES, max_tokens=200, indent=4)
    assert heard.text.strip("\n")
    assert "\n" not in heard.text.strip("\n")
    assert heard.finished.reason == "stop"


def test_a_warm_up_reads_without_an_answer(worker: Worker) -> None:
    """The next request finds its prompt read."""
    text = "warm " + BEFORE
    warm = fill(worker, text, max_tokens=0)
    assert warm.deltas == []
    assert cached(fill(worker, text)) == warm.finished.usage.prompt_tokens - 1


def test_concurrent_requests_read_a_common_prefix_once(worker: Worker) -> None:
    """Of three, one reads, two share it, and each answers as if alone."""
    text = "twins\n" + BEFORE * 3
    asked = [
        worker.request(
            text,
            endpoint="infill",
            suffix=AFTER,
            max_tokens=20,
            sampling=SamplingParams(temperature=0.9, seed=seed),
        )
        for seed in range(3)
    ]
    together = worker.answer(*asked)
    read = [one.finished.usage.prompt_tokens - cached(one) for one in together]
    assert sorted(read)[:2] == [1, 1]
    if worker.ready.exactness == "strict":
        for one, request in zip(together, asked, strict=True):
            alone = worker.one(
                text, endpoint="infill", suffix=AFTER, max_tokens=20, sampling=request.sampling,
                client=f"alone {request.id}",
            )  # fmt: skip
            assert one.text == alone.text


def test_a_named_session_finds_its_slot_again(worker: Worker) -> None:
    """Others that begin alike do not take it, however often they come."""
    fill(worker, "mine " + BEFORE, session="editor")
    for turn in range(4):
        fill(worker, f"mine {turn}" + BEFORE, session=f"chat {turn % 2}")
    again = fill(worker, "mine " + BEFORE, session="editor")
    assert cached(again) == again.finished.usage.prompt_tokens - 1


HALF: dict[str, Any] = {"begun": "    whi t", "max_tokens": 30}
"""Of tiny models' tokens "th" goes on behind the last letter."""
RANDOM = SamplingParams(temperature=1.2, seed=4, logit_bias=dict.fromkeys(range(97, 123), 9.0))


def text_of(pieces: Iterable[bytes]) -> str:
    """As text, without half a character at the end."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(b"".join(pieces))


def written(heard: Heard) -> str:
    """Text of all tokens of an answer; a tiny model's first 256 are a byte each."""
    merged = {256: b"th", 257: b"he", 258: b"in"}
    return text_of(merged.get(token) or bytes([token]) for token in heard.tokens if token < 259)


def test_a_half_typed_word_is_generated_and_not_sent(worker: Worker) -> None:
    """Greedy or sampled; the prompt is shorter, and the tokens that write it are counted."""
    for sampling in (RANDOM, replace(RANDOM, temperature=0.0)):
        heard = fill(worker, sampling=sampling, **HALF)
        assert written(heard) == "t" + heard.text
        assert heard.finished.usage.completion_tokens == 30
        whole = fill(worker, begun="    whi ", sampling=sampling)
        assert heard.finished.usage.prompt_tokens == whole.finished.usage.prompt_tokens


def test_letters_of_one_word_are_one_prompt(worker: Worker) -> None:
    """Further letters of the word find the prompt read."""
    fill(worker, begun="    typ ", session="typist")
    for fields in ({"begun": "    typ t"}, {"before": f"{BEFORE}    typ t"}):
        again = fill(worker, session="typist", **fields)
        assert cached(again) == again.finished.usage.prompt_tokens - 1


@pytest.mark.parametrize("begun", ["", "    yes", "x\n", "x = y", "où"])
def test_text_that_no_token_extends_is_read_as_it_is(worker: Worker, begun: str) -> None:
    """An empty line, a whole word: as in a client's own prompt, which is never constrained."""
    pre, suf, mid = MARKS[:3]
    heard = fill(worker, begun=begun, sampling=RANDOM, client=f"a {begun}")
    own = worker.one(f"{pre}{BEFORE}{suf}{AFTER}{mid}{begun}", sampling=RANDOM, client=f"b {begun}")
    usage = heard.finished.usage.prompt_tokens, own.finished.usage.prompt_tokens
    assert usage == (len(BEFORE) + len(AFTER) + 3 + len(begun.encode()),) * 2
    assert heard.text == own.text or worker.ready.exactness != "strict"
    held = worker.one(f"{pre}{BEFORE}{suf}{AFTER}{mid}{begun}t", sampling=RANDOM)
    assert held.finished.usage.prompt_tokens == usage[1] + 1


def test_any_drafter_gives_the_tokens_of_none(worker: Worker) -> None:
    """Under a seed, with the held beginning and behind it."""
    common: dict[str, Any] = {**HALF, "sampling": RANDOM, "client": "drafts"}
    plain = fill(worker, speculation=SpeculationParams(mode="off"), **common)
    for names in (["lookup"], ["model"], None):
        wish = SpeculationParams(mode="always", drafters=names)
        heard = fill(worker, speculation=wish, prediction=plain.text, **common)
        assert heard.text == plain.text or worker.ready.exactness != "strict"
        assert written(heard) == "t" + heard.text


def test_logprobs_and_stop_strings_follow_the_sent_text(worker: Worker) -> None:
    """Each token has a log probability with the text's bytes.

    Stop strings ignore the typed text.
    """
    heard = fill(worker, sampling=RANDOM, logprobs=2, **HALF)
    told = [each for delta in heard.deltas for each in delta.logprobs]
    assert [each.chosen.token for each in told] == heard.tokens
    assert text_of(each.chosen.piece for each in told) == heard.text
    again = fill(worker, sampling=RANDOM, stop=["t" + heard.text[:1], "i t"], **HALF)
    assert again.text[:1] == heard.text[:1] or worker.ready.exactness != "strict"
    assert again.text


@pytest.mark.parametrize("fields", [{}, {"logprobs": 2}, {"stop": ["e"]}])
def test_a_constrained_answer_outlives_its_worker(worker: Worker, fields: dict[str, Any]) -> None:
    """Wherever it was cut; neither worker sends the typed text."""
    if worker.ready.exactness == "strict":
        same(worker, worker.request(
            BEFORE, endpoint="infill", suffix=AFTER, sampling=RANDOM, **HALF, **fields
        ))  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("[0-9]{3}", {"type": "regex", "pattern": "[0-9]{3}"}),
        ("h(e|i)[0-9]", {"type": "regex", "pattern": "h(e|i)[0-9]"}),
        ("here|there", {"type": "choice", "choices": ["here", "there"]}),
        ("hex[01]", {"type": "gbnf", "grammar": 'root ::= "hex" [0-1]'}),
        ("true|false", {"type": "json_schema", "json_schema": {"schema": {"type": "boolean"}}}),
    ],
)
def test_a_grammar_applies_after_the_typed_text(
    worker: Worker, kind: str, wanted: dict[str, Any]
) -> None:
    """Also where one token crosses from one to the other."""
    alone = fill(worker, begun="x = ").finished.usage.prompt_tokens
    bias = {256: 40.0} | dict.fromkeys(range(32, 127), 20.0)
    for seed in range(4):
        sampling = SamplingParams(temperature=1.2, seed=seed, logit_bias=bias)
        asked: dict[str, Any] = {"response_format": wanted, "ignore_eos": False}
        heard = fill(worker, begun="x = t", sampling=sampling, **asked)
        assert re.fullmatch(kind, heard.text), heard.text
        assert heard.finished.usage.prompt_tokens == alone
        if kind.startswith("h"):
            assert heard.tokens[0] == 256


def test_a_replayed_answer_begins_as_it_was_typed(worker: Worker) -> None:
    """Greedy decoding chooses the same tokens again, the typed ones first."""
    greedy = SamplingParams(temperature=0.0, logit_bias=RANDOM.logit_bias)
    asked = worker.request(BEFORE, endpoint="infill", suffix=AFTER, sampling=greedy, **HALF)
    heard = worker.answer(asked)[0]
    worker.send(Replay(replace(asked, id="again"), heard.text))
    told = worker.until(lambda event: isinstance(event, Replayed))[-1]
    assert isinstance(told, Replayed)
    assert told.prompt_tokens == heard.finished.usage.prompt_tokens
    assert told.tokens >= len(heard.text) / 2
