"""A draft with another tokenizer changes no token. Real llama.cpp, five kinds of tokenizers."""

from __future__ import annotations

import itertools
import string
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import pytest
import tiny
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.engine_harness import SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth
from laws.test_lossless import CHAINS

from localspec import drafters
from localspec.bench.shapes import byte_alphabet
from localspec.config import Placement
from localspec.drafters._translated import Translation, _Rewriting, _Sampler
from localspec.engine.llama.model import Model
from localspec.engine.sampling import Sampler
from localspec.types import Drafter, SamplingParams, Token
from localspec.worker import translation

PROMPTS = (
    "def return_(x):\n    return x  # the returned",
    "the thin the thing, in the hin",
    "Grüße, naïve 你好 \U0001f600 — ur\tend\r\n",
    "\x00\x7f  \n\n\n        deep",
)
GREEDY = Sampler(SamplingParams(temperature=0))
KINDS = ("bytes", "gpt2", "llama3", "sentencepiece", "unigram", "wordpiece")


def build(path: Path, kind: str, seed: int) -> Path:
    """A tiny random Llama with a tokenizer of that kind; those of bytes have no merges."""
    if kind == "sentencepiece":
        return tiny.build(path, seed=seed, sentencepiece=True)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(f"tiny-{kind}")
    writer.add_context_length(4096)
    if kind in {"gpt2", "llama3", "bytes"}:
        merges = ["! !"]  # llama.cpp wants some
        if kind == "gpt2":
            merges = ["t h", "th e", "i n", "r e", "u r", "re t", "Ġ the", "Ċ Ċ", "Ġ Ġ", "ur n"]
        if kind == "llama3":
            merges = ["i n", "Ġ t", "Ġt h", "Ġth e", "Ġ r", "in g", "1 2"]
        words = [*byte_alphabet(), *(merge.replace(" ", "") for merge in merges)]
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre({"gpt2": "gpt-2", "llama3": "llama-bpe"}.get(kind, "qwen2"))
        writer.add_token_merges(merges)
    elif kind == "unigram":
        words = ["<|unknown|>", *(f"<0x{byte:02X}>" for byte in range(256)), *string.printable[:94],
                 "▁", "▁re", "the", "in", "turn", "▁return", "ing"]  # fmt: skip
        writer.add_tokenizer_model("t5")
        writer.add_unk_token_id(0)
    else:
        letters = string.ascii_lowercase + string.digits + string.punctuation
        words = [
            "<|unknown|>",
            *(f"▁{each}" for each in letters),
            *letters,
            "▁the",
            "ing",
            "▁return",
        ]
        writer.add_tokenizer_model("bert")
        writer.add_unk_token_id(0)
    vocabulary = [*words, *tiny.SPECIALS]
    writer.add_token_list(vocabulary)
    writer.add_token_types([*map(tiny.kind_of, vocabulary)])
    if kind in {"unigram", "wordpiece"}:
        writer.add_token_scores([-1.0 - len(vocabulary) / (1 + len(word)) for word in vocabulary])
    writer.add_bos_token_id(vocabulary.index("<|endoftext|>"))
    writer.add_eos_token_id(vocabulary.index("<|im_end|>"))
    writer.add_add_bos_token(kind == "llama3")
    tiny.weights(writer, len(vocabulary), seed=seed)
    return tiny.ended(writer, path)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    return {kind: build(folder / f"{kind}.gguf", kind, at) for at, kind in enumerate(KINDS)}


@pytest.fixture(scope="module")
def models(paths: dict[str, Path]) -> Iterator[dict[str, Model]]:
    """Their vocabularies."""
    found = {kind: Model.load(path) for kind, path in paths.items()}
    yield found
    for model in found.values():
        model.close()


@dataclass
class Pair:
    """A target and a draft of two kinds, and how one writes for the other."""

    harness: Harness
    translation: Translation

    def drafters(self, *others: str) -> dict[str, Drafter]:
        """The draft model, and other sources."""
        context = self.harness.draft_memory
        made = drafters.load("model", context=context, translation=self.translation)
        return {**self.harness.drafters(*others), "model": made}


@pytest.mark.parametrize(("target", "draft"), [*itertools.permutations(KINDS[:5], 2)])
def test_any_pair_gives_the_tokens_of_plain_decoding(
    paths: dict[str, Path], target: str, draft: str
) -> None:
    """Greedy, sampled and with penalties, at several depths, alone and together, beside lookup."""
    with opened(paths[target], paths[draft], Placement(threads=1), slots=SLOTS, context=512) as h:
        pair = Pair(h, translation.between(h.target, h.draft))
        drafted = 0
        for chain, sampling in CHAINS.items():
            requests = [h.request(prompt, sampling, tokens=16) for prompt in PROMPTS]
            plain = [output(finish(h.engine({}, FixedDepth(0)), [each])[0]) for each in requests]
            for depth, others in ((1, ()), (5, ()), (4, ("lookup",))):
                engine = h.engine(pair.drafters(*others), FixedDepth(depth, "model"))
                sessions = finish(engine, requests)
                assert [output(session) for session in sessions] == plain, (chain, depth)
                assert all("model" in session.drafters for session in sessions)
                drafted += sum(session.meter.drafted for session in sessions)
        assert drafted > 0


@pytest.mark.parametrize(("target", "draft"), [*itertools.permutations(KINDS, 2)])
def test_shared_tokens_write_the_same(models: dict[str, Model], target: str, draft: str) -> None:
    """Each of them once on both sides; a control token only where it ends a text."""
    ours, theirs = models[target], models[draft]
    found = translation.between(ours, theirs)
    assert found.shared > translation.LEAST_SHARED
    assert len({*found.draft_ids.tolist()}) == len({*found.target_ids.tolist()}) == found.shared
    for mine, other in zip(found.target_ids.tolist(), found.draft_ids.tolist(), strict=True):
        assert ours.piece(mine) == theirs.piece(other)
        assert ours.piece(mine) or (mine in ours.eog and other in theirs.eog)


_WORDS = st.sampled_from(
    ["the", " return", "\n    ", "12", "ü", "你", "\U0001f600", " ", "ing", "<|im_end|>"]
)
_TEXTS = st.lists(st.one_of(st.text(max_size=6), _WORDS), max_size=200).map("".join)


@settings(max_examples=60, deadline=None)
@given(_TEXTS, st.integers(1, 40), st.sampled_from(KINDS[:4]), st.sampled_from(KINDS[:4]))
def test_a_text_is_written_anew_whatever_parts_it_comes_in(
    models: dict[str, Model], text: str, step: int, target: str, draft: str
) -> None:
    """The draft's tokens write the target's text; those before the place told are as before."""
    ours, theirs = models[target], models[draft]
    found = translation.between(ours, theirs)
    tokens = ours.tokenize(text, add_special=False, parse_special=True)
    writing = _Rewriting(found)
    before: list[Token] = list(writing.tokens)
    for start in range(0, len(tokens), step):
        first = writing.extend(tokens[start : start + step])
        assert writing.tokens[:first] == before[:first]
        before = list(writing.tokens)
    assert writing.whole
    written = b"".join(map(theirs.spelled, writing.tokens[len(found.begin) :]))
    said = b"".join(map(ours.spelled, tokens))
    assert written.decode("utf-8", "replace") == said.decode("utf-8", "replace")


def test_a_word_in_pieces_is_the_targets_one_token(models: dict[str, Model]) -> None:
    """Of three letters that the draft says, one node; what it needs of the text stays as it is."""
    ours, theirs = models["gpt2"], models["bytes"]
    saying = _Sampler(translation.between(ours, theirs), GREEDY, ours.plain_tokens("in"))
    assert saying.written(theirs.plain_tokens("the")) == [(*ours.plain_tokens("the"), slice(0, 3))]


@settings(max_examples=60, deadline=None)
@given(_TEXTS, _TEXTS, st.sampled_from(KINDS[:4]), st.sampled_from(KINDS[:4]))
def test_what_is_said_is_written_in_the_targets_tokens(
    models: dict[str, Model], text: str, said: str, target: str, draft: str
) -> None:
    """All of it, behind any text, and each node is made of some of the draft's tokens."""
    ours, theirs = models[target], models[draft]
    found = translation.between(ours, theirs)
    tokens = found.tokenize(said)
    nodes = _Sampler(found, GREEDY, ours.plain_tokens(text)).written(tokens)
    assert all(tokens[parts] for _, parts in nodes)
    written = b"".join(ours.piece(token) for token, _ in nodes)
    assert written.decode("utf-8", "replace") == said


def test_a_draft_that_thinks_the_same_is_accepted(paths: dict[str, Path], tmp_path: Path) -> None:
    """The target's weights, and a control token of another name: nearly all is kept.

    It writes letters, which are tokens of both; so the text that is written anew is the same.
    """
    text = paths["bytes"].read_bytes()
    other = tmp_path / "renamed.gguf"
    name = (len(b"<|im_start|>")).to_bytes(8, "little") + b"<|im_start|>"
    other.write_bytes(text.replace(name, name.replace(b"start", b"begin")))
    with opened(paths["bytes"], other, Placement(threads=1), slots=SLOTS, context=512) as h:
        pair = Pair(h, translation.between(h.target, h.draft))
        letters = dict.fromkeys(h.target.plain_tokens(string.ascii_lowercase), 30.0)
        for temperature in (0.0, 0.9):
            sampling = SamplingParams(temperature=temperature, seed=4, logit_bias=letters)
            requests = [h.request(prompt, sampling) for prompt in PROMPTS[:2]]
            sessions = finish(h.engine(pair.drafters(), FixedDepth(4, "model")), requests)
            for session in sessions:
                assert session.meter.accepted > 0.8 * session.meter.drafted > 0


def test_rejection_is_refused_in_a_sentence(
    paths: dict[str, Path], models: dict[str, Model]
) -> None:
    """At load, where the configuration wants it."""
    files = [paths["gpt2"], paths["sentencepiece"]]
    made, why = translation.needed(models["gpt2"], models["sentencepiece"], files, "rejection")
    assert made is None
    assert "another tokenizer" in why
    made, why = translation.needed(models["gpt2"], models["sentencepiece"], files, "coupled")
    assert (made is not None, why) == (True, "")
