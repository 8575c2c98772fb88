"""Laws of readers: pieces do not depend on cuts, nothing is lost, calls are as written."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.text.formats import Format, Offer, Piece, Reader, reading, writing
from localspec.text.formats.marks import opening
from localspec.text.formats.parts import Hole
from localspec.text.formats.table import FORMATS, GENERIC

WEATHER = {
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
TIME = {"name": "now"}
OFFER = Offer([WEATHER, TIME], thinks=True)
MADE: list[tuple[str, dict[str, Any]]] = [
    ("get_weather", {"city": "Paris", "days": 2}),
    ("now", {}),
]


class Answer(NamedTuple):
    """An answer with two calls, and its text and thoughts."""

    text: str
    content: str = ""
    reasoning: str = ""


def answer(form: Format) -> Answer:
    """Thoughts, text and two calls, in the family's format."""
    if form.heads:
        return _in_messages(form)
    pair = form.thoughts[0] if form.thoughts else None
    thought = f"{pair.opening}Well.{pair.closing}" if pair else ""
    around = next(((one.opening, one.closing) for one in form.words if one.closing), ("", ""))
    content = "I look."
    if form.name == "functionary-3.2":
        around = ("all\n", "")
    text = f"{thought}{around[0]}{content}{around[1]}{writing.calls(form, MADE)}"
    return Answer(text, content, "Well." if pair else "")


def _in_messages(form: Format) -> Answer:
    heads = form.heads
    assert heads is not None
    messages = [f"{heads.thinks}Well.", f"{heads.before or heads.says}I look."]
    for name, arguments in MADE:
        body = writing.calls(form, [(name, arguments)]) if form.ways else json.dumps(arguments)
        messages.append(heads.calls.format(name=name) + body)
    return Answer(heads.again.join(messages), "I look.", "Well.")


ANSWERS = {form.name: (form, answer(form)) for form in (*FORMATS, GENERIC)}
family = pytest.mark.parametrize("name", ANSWERS)


def read(
    found: Format, parts: list[str], offer: Offer = OFFER, *, cut: bool = False
) -> list[Piece]:
    """The pieces of an answer that comes in `parts`; adjacent ones of a kind are joined."""
    reader = Reader(lambda tape: reading(tape, found, offer))
    pieces = [piece for part in parts for piece in reader.push(part)] + reader.finish(cut=cut)
    joined: list[Piece] = []
    for kind, text, raw in pieces:
        last = joined[-1] if joined else None
        if last and last.kind == kind not in ("call", "arguments"):
            joined[-1] = Piece(kind, last.text + text, last.raw + raw)
        else:
            joined.append(Piece(kind, text, raw))
    return joined


def said(pieces: list[Piece], kind: str) -> list[str]:
    """The content of the pieces of one kind."""
    return [piece.text for piece in pieces if piece.kind == kind]


def calls(pieces: list[Piece]) -> list[tuple[str, Any]]:
    """Names and arguments."""
    arguments = map(json.loads, said(pieces, "arguments"))
    return [*zip(said(pieces, "call"), arguments, strict=True)]


def form(name: str) -> Format:
    """The format of that name."""
    return ANSWERS[name][0]


@family
def test_thoughts_words_and_calls_are_told_apart(name: str) -> None:
    """Two calls with their arguments, and the thoughts and text before them."""
    found, known = ANSWERS[name]
    pieces = read(found, [known.text])
    assert calls(pieces) == MADE
    assert "".join(said(pieces, "content")).strip() == known.content
    assert "".join(said(pieces, "reasoning")).strip() == known.reasoning


@family
@settings(max_examples=25)
@given(data=st.data())
def test_any_cut_gives_the_same_pieces_and_nothing_is_lost(name: str, data: st.DataObject) -> None:
    """The pieces depend on the text alone, also for damaged answers."""
    found, known = ANSWERS[name]
    begin, end = sorted(data.draw(st.tuples(*[st.integers(0, len(known.text))] * 2)))
    instead = data.draw(st.sampled_from(["", "<", '"', "}", "{", "\n", known.text, "```json\n"]))
    text = known.text[:begin] + instead + known.text[end:]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    offer = data.draw(st.sampled_from([OFFER, Offer(), Offer([TIME], thinking=True, thinks=True)]))
    limit = data.draw(st.booleans())

    whole = read(found, [text], offer, cut=limit)
    parts = [text[one:other] for one, other in pairwise([0, *cuts, len(text)])]

    assert "".join(piece.raw for piece in whole) == text
    assert read(found, parts, offer, cut=limit) == whole
    assert read(found, list(text), offer, cut=limit) == whole


@family
@pytest.mark.parametrize("tail", ["", " to=me", " to=" + "x" * 2000, "\n\n"])
def test_a_head_without_an_end_is_words(name: str, tail: str) -> None:
    """A message that begins and never says what it is ends the reading all the same."""
    found, _ = ANSWERS[name]
    for begin in found.heads.begins if found.heads else ():
        text = f"Hi. {begin}{tail}"
        pieces = read(found, [text])
        assert "".join(piece.raw for piece in pieces) == text
        assert read(found, list(text)) == pieces


@family
def test_a_cut_answer_has_whole_calls_only(name: str) -> None:
    """A token limit at any place leaves whole calls only."""
    found, known = ANSWERS[name]
    for end in range(len(known.text)):
        pieces = read(found, [known.text[:end]], cut=True)
        made = calls(pieces)
        assert made == MADE[: len(made)]
        content = "".join(said(pieces, "content")).strip()
        begun = content[len(known.content) :]  # of a mark that is a word: it needs some letters
        assert known.content.startswith(content) or (len(begun) < 3 and begun.isalpha())


@family
def test_one_call_is_enough_where_no_more_may_be(name: str) -> None:
    """With `parallel_tool_calls` false there is one call, and nothing of the others."""
    found, known = ANSWERS[name]
    pieces = read(found, [known.text], Offer([WEATHER, TIME], thinks=True, parallel=False))
    assert calls(pieces) == MADE[:1]
    assert "".join(said(pieces, "content")).strip() == known.content


@family
@pytest.mark.parametrize("text", ["Hello.", "", "  two\n\nlines \n", 'see `{"name": 1}`', "{}"])
def test_words_are_words(name: str, text: str) -> None:
    """An answer without calls is the content, to the last blank."""
    assert "".join(said(read(form(name), [text]), "content")) == text


@family
@settings(max_examples=25)
@given(text=st.text(alphabet="abc <>{}[]()\"'\n,.:=/|_", max_size=60))
def test_words_without_a_mark_are_words(name: str, text: str) -> None:
    """Any letters and brackets are text."""
    pieces = read(form(name), [text])
    if {piece.kind for piece in pieces} <= {"content"}:
        assert "".join(said(pieces, "content")) == text


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9) | st.sampled_from(["7", "true", "null", '{"a": 1}', "it's", '"', "</x>"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=9,
)  # fmt: skip
KINDS = {
    "string": st.text(max_size=30)
    | st.sampled_from(["007", "true", "null", "", "a\n b\n", "{'x'}"]),
    "integer": st.integers(),
    "number": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "array": st.lists(values, max_size=3),
    "object": st.dictionaries(st.text(max_size=4), values, max_size=3),
}
names = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


@st.composite
def offered_calls(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[tuple[str, dict[str, Any]]]]:
    """Functions, and calls of them whose arguments have the types of their schemas."""
    functions, made = [], []
    for number in range(draw(st.integers(1, 3))):
        kinds = draw(st.dictionaries(names, st.sampled_from(sorted(KINDS)), max_size=4))
        name = f"{draw(names)}{number}"
        properties = {key: {"type": kind} for key, kind in kinds.items()}
        functions.append({"name": name, "parameters": {"type": "object", "properties": properties}})
        made.append((name, {key: draw(KINDS[kind]) for key, kind in kinds.items()}))
    return functions, made


@family
@settings(max_examples=25)
@given(one=offered_calls(), data=st.data())
def test_what_a_family_writes_is_read_back(name: str, one: Any, data: st.DataObject) -> None:
    """For any calls and any cuts, the reader returns what the writer was given."""
    found = form(name)
    if not found.ways:
        return
    functions, made = one
    text = writing.calls(found, made)
    if _ambiguous(found, made):
        return
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=5)))
    parts = [text[begin:end] for begin, end in pairwise([0, *cuts, len(text)])]
    pieces = read(found, parts, Offer(functions))
    assert json.dumps(calls(pieces)) == json.dumps(json.loads(json.dumps(made)))
    assert "".join(said(pieces, "content")).strip() == ""


def _ambiguous(found: Format, made: list[tuple[str, dict[str, Any]]]) -> bool:
    """Whether the notation is ambiguous: texts that contain its marks, trees without types."""
    way = found.ways[0]
    if Hole.TREE in way.call:
        return any(isinstance(value, (list, dict)) for _, given in made for value in given.values())
    if Hole.NOTED not in way.call:
        return False
    text = json.dumps(made)
    return any(mark in text for mark in ("<|", '\\"')) or "\\" in text


@family
def test_marks_and_calls_that_are_spoken_of_are_words(name: str) -> None:
    """Marks in text, between backticks, and a call's end alone are text."""
    found = form(name)
    if not found.ways:
        return
    way, mark = found.ways[0], opening(found.ways[0])
    ending = way.closing.strip() or [one for one in way.call if isinstance(one, str)][-1:] or "}"
    for text in (
        f"The mark {mark} begins a call.",
        f"Begin with `{mark}` and go on.",
        f"Write `{writing.calls(found, MADE[1:])}` to call.",
        f"It ends with {ending} there.",
    ):
        pieces = read(found, [text])
        assert ("".join(said(pieces, "content")), calls(pieces)) == (text, [])


@family
def test_words_may_stand_before_between_and_behind_calls(name: str) -> None:
    """All text is content, and each call is made."""
    found = form(name)
    if not found.ways:
        return
    first, second = (writing.calls(found, [one]) for one in MADE)
    text = f"One.\n\n{first}\nAnd two.\n{second}\nDone."
    for parts in ([text], list(text)):
        pieces = read(found, parts)
        assert calls(pieces) == MADE
        assert "".join("".join(said(pieces, "content")).split()) == "One.Andtwo.Done."


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('<tool_call>\n{"name": "get_weather", "arguments": [1]}', None),
        ('<tool_call>{"name": "now", "arguments": {"a": tru!}}</tool_call>', None),
        ('{"name": "unknown", "arguments": {}}', None),
        ("<tool_call>nonsense</tool_call>", None),
        ('Write `<tool_call>{"name": "now", "arguments": {}}</tool_call>` to call.', None),
    ],
)
def test_what_is_broken_or_only_spoken_of_is_content(text: str, content: str | None) -> None:
    """A broken or mentioned call is no call, and its text is unchanged."""
    pieces = read(form("hermes"), [text])
    assert "".join(said(pieces, "content")) == (text if content is None else content)
    assert not said(pieces, "call")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        ('I will.\n\n{"name": "now", "parameters": {}}', "I will."),
        ('I will. {"name": "now", "parameters": {}}', "I will."),
        ('A call is {"name": "now", "parameters": {}} in such a model.', None),
        ('An object {"name": "Anna", "parameters": {"age": 3}}', None),
        ("int main() { return 0; }", None),
        ('<|python_tag|>{"name": "now", "parameters": {}}', ""),
        ("<function=now>{}</function>", ""),
    ],
)
def test_a_bare_object_is_a_call_where_nothing_goes_on_behind_it(
    text: str, content: str | None
) -> None:
    """Llama 3 has no marks; text may precede a call, but not follow it."""
    pieces = read(form("llama3"), [text])
    assert "".join(said(pieces, "content")).strip() == (text if content is None else content)
    assert bool(said(pieces, "call")) == (content is not None)


@pytest.mark.parametrize("name", ["hermes", "qwen3-coder", "glm", "deepseek-v4", "kimi-k2"])
def test_a_call_ends_thoughts_that_nothing_else_ends(name: str) -> None:
    """A call inside of thoughts that are closed later is part of them."""
    found = form(name)
    call = writing.calls(found, [("now", {})])
    offer = Offer([TIME], thinks=True, thinking=True)
    pieces = read(found, list(f"I need it.\n{call}"), offer)
    assert (calls(pieces), "".join(said(pieces, "reasoning"))) == ([("now", {})], "I need it.")
    pieces = read(found, list(f"It would be {call} then.</think>No."), offer)
    assert calls(pieces) == []
    assert "".join(said(pieces, "reasoning")) == f"It would be {call} then."
    assert "".join(said(pieces, "content")) == "No."


@family
@pytest.mark.parametrize("size", [1, 7, 10_000])
def test_thoughts_are_not_closed_inside_of_a_call(name: str, size: int) -> None:
    """The mark that ends thoughts, in an argument of any call, is a part of that argument."""
    found = form(name)
    if not found.ways or not found.thoughts or found.ways[0].first:
        return
    if opening(found.ways[0]) == "{":
        return
    for pair in found.thoughts:
        made = [("get_weather", {"city": city}) for city in ("a", f"b {pair.closing} c", "d")]
        if _ambiguous(found, made):
            continue
        text = "I need it.\n" + writing.calls(found, made)
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        pieces = read(found, parts, Offer([WEATHER, TIME], thinks=True, thinking=True))
        assert calls(pieces) == made
        assert "".join(said(pieces, "reasoning")) == "I need it."


@pytest.mark.parametrize(
    "text",
    [
        "<function=unknown>\n</function>",
        "<tool_call>\n<function=>",
        "<tool_call>nothing",
        "see <function=get_weather",
    ],
)
def test_elements_that_are_no_call_are_words(text: str) -> None:
    """The text is unchanged to the last character."""
    pieces = read(form("qwen3-coder"), [text])
    assert "".join(said(pieces, "content")) == text
