"""Finds a chat template's format, and what it reads, by rendering with it.

A known conversation with a call is rendered; the format is the one whose reader finds that call in
the result. The template's source is examined only if it writes no calls of the history.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeAlias

from localspec.errors import TemplateError
from localspec.text.formats.offer import Json, Offer
from localspec.text.formats.parts import Format
from localspec.text.formats.reading import reading
from localspec.text.formats.table import FORMATS, GENERIC
from localspec.text.formats.tape import Reader
from localspec.wire.messages import Message

Render: TypeAlias = Callable[[Sequence[Message], Mapping[str, Any]], str]

USER, AGAIN, SYSTEM, SAID, RESULT, OTHER = (
    "the user asks", "the user asks again", "the system says", "the assistant says",
    "a result comes", "another result",
)  # fmt: skip
THOUGHT, LATER = "a thought is had", "more is said by the system"
_ID, _SHORT_ID, _OTHER_ID = "call_0123456789abcdef01234567", "abcdefghi", "abcdefghj"
FIND: Json = {
    "name": "zoo_find",
    "description": "Finds animals.",
    "parameters": {
        "type": "object",
        "properties": {
            "kind": {"type": "string", "description": "Which."},
            "many": {"type": "integer", "description": "How many."},
        },
        "required": ["kind"],
    },
}
NOW: Json = {
    "name": "now_at",
    "description": "Tells the time.",
    "parameters": {"type": "object", "properties": {}},
}
_ARGUMENTS: Json = {"kind": "ape", "many": 7}
TOOLS = [{"type": "function", "function": one} for one in (FIND, NOW)]
OFFER = Offer([FIND, NOW], thinks=True)


@dataclass(frozen=True, slots=True)
class Reads:
    """The parts of a conversation that a template reads as they are; others are converted.

    `parts`: the roles whose contents are lists of parts. `system`, `late_system`: system messages
    are shown, at the beginning and later; `system_alone`: one without any other message. `empty`:
    an answer may have no content. `calls`, `results`: calls and their results are shown.
    `objects`: arguments are objects. `several`: all calls of one message are shown. `beside`:
    calls are shown after text in the same message. `tools`: functions are shown; `needs_system`:
    only with a system message. `alternates`: no role may come twice in a row. `short_ids`: ids have
    nine letters. `null`: the content of a message with nothing but calls is null. `thought`: the
    field of thoughts; "" if none is read. `one_text`: a call has either thoughts or text beside it.
    """

    parts: frozenset[str] = frozenset()
    system: bool = True
    late_system: bool = True
    system_alone: bool = True
    empty: bool = True
    calls: bool = True
    results: bool = True
    objects: bool = True
    several: bool = True
    beside: bool = True
    tools: bool = True
    needs_system: bool = False
    alternates: bool = False
    short_ids: bool = False
    null: bool = False
    thought: str = "reasoning_content"
    one_text: bool = False


class Recognised(NamedTuple):
    """A template's format, how it was recognised, and a warning if there is one."""

    form: Format
    why: str
    warning: str
    reads: Reads


def recognised(template: str, render: Render) -> Recognised:
    """The format of a chat template that `render` renders with. Never raises."""
    probe = _Probe(template, render)
    try:
        reads = probe.reads()
        form, why, warning = probe.form()
    except Exception as error:  # noqa: BLE001 - no template may keep a model from loading
        said = f"The chat template was not understood: {error!r:.300}."
        return Recognised(GENERIC, "looking at it failed", said, Reads(tools=False, calls=False))
    if form is GENERIC:  # functions described in text are called in text
        own = probe.own
        reads = replace(
            reads, tools=False, calls=reads.calls and own, results=reads.results and own
        )
    return Recognised(form, why, warning or probe.broken, reads)


def found_calls(text: str, form: Format, offer: Offer) -> tuple[list[tuple[str, Any]], int]:
    """The calls that a format finds in a text, and the number of characters left as text."""
    reader = Reader(lambda tape: reading(tape, form, offer))
    calls: list[tuple[str, Any]] = []
    left = 0
    for piece in (*reader.push(text), *reader.finish()):
        if piece.kind == "call":
            calls.append((piece.text, None))
        elif piece.kind == "arguments":
            calls[-1] = (calls[-1][0], json.loads(piece.text))
        elif piece.kind == "content":
            left += len(piece.text)
    return calls, left


def called(name: str, arguments: Any, id_: str = _SHORT_ID) -> Json:
    """A call in a message's form."""
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


@dataclass(slots=True)
class _Probe:
    """Probes one template by rendering."""

    template: str
    render: Render
    broken: str = ""
    """The reason why the template cannot render anything."""
    own: bool = False
    """Whether the template writes calls of the history."""
    _call: str = ""
    """The text that the template wrote for one call."""
    _reads: Reads = field(default_factory=Reads)

    def form(self) -> tuple[Format, str, str]:
        """The format, how it was recognised, and a warning."""
        if self._call:
            if form := self._reading():
                return form, "a call of the history is written this way", ""
            if self._signed() is None:
                return GENERIC, "no known format reads the calls that it writes", _UNKNOWN
        if form := self._signed():
            sign = next(sign for sign in form.signs if sign in self.template)
            return form, f"its text holds {sign!r}", ""
        if self.broken:
            return GENERIC, "it cannot be rendered, and holds no mark of a known format", ""
        warning = ""
        if self._reads.tools:
            warning = "The chat template shows functions, but not how to call them."
        return GENERIC, "it writes no calls and holds no mark of a known format", warning

    def reads(self) -> Reads:
        """The fields that the template reads."""
        if self._shown([Message("user", USER)]) is None and self.broken:
            return self._reads
        self._probe_contents()
        self._probe_tools()
        self._probe_calls()
        self._probe_thoughts()
        return self._reads

    def _probe_contents(self) -> None:
        user = [Message("user", USER)]
        self._probe_parts("user", USER)
        for role, text in (("system", SYSTEM), ("assistant", SAID), ("tool", RESULT)):
            self._probe_parts(role, text)
        system = [Message("system", SYSTEM), *user]
        self._set(
            system=self._has(system, SYSTEM, USER) and self._has(system, SYSTEM, USER, tools=TOOLS)
        )
        alone = system[:1]
        self._set(system_alone=self._has(alone, SYSTEM) and self._has(alone, SYSTEM, tools=TOOLS))
        turns = [*user, Message("assistant", SAID)]
        late = [*turns, Message("system", LATER), Message("user", AGAIN)]
        both = [system[0], *late] if self._reads.system else late  # some show only the last of two
        texts = [one.content for one in both if one.role != "assistant"]
        self._set(late_system=self._has(both, *texts) and self._has(both, *texts, tools=TOOLS))
        self._set(alternates=not self._has([*user, Message("user", AGAIN)], USER, AGAIN))
        silent = [*user, Message("assistant", ""), Message("user", AGAIN)]
        self._set(empty=self._has(silent, USER, AGAIN))

    def _probe_parts(self, role: str, text: str) -> None:
        """Find whether a role's content is a list: text alone is not shown, and text in a part is.

        Where neither is shown, the template wants more messages around this one. The role is then
        taken to have the same kind of content as users.
        """
        fields = _result_fields(_SHORT_ID) if role == "tool" else {}
        one, user = Message(role, text, fields), Message("user", USER)
        turns = {"user": [one], "system": [one, user]}.get(role, [user, one])
        known = self._reads.parts
        if not self._has(turns, text):
            self._set(parts=known | {role})
            if not self._has(turns, text) and "user" not in known:
                self._set(parts=known)

    def _probe_tools(self) -> None:
        user, name = [Message("user", USER)], str(FIND["name"])
        if not self._has(user, name, tools=TOOLS):
            shown = self._has([Message("system", ""), *user], name, tools=TOOLS)
            self._set(needs_system=shown, tools=shown)

    def _probe_calls(self) -> None:
        """Find the form of calls that the template accepts, and whether it shows them at all."""
        user, result = Message("user", USER), Message("tool", RESULT, _result_fields(_SHORT_ID))
        for null, objects in ((False, True), (False, False), (True, True), (True, False)):
            self._set(null=null, objects=objects)
            written = self._between(
                self._shown([user, self._made(""), result], TOOLS), USER, RESULT
            )
            if written and "ape" in written and self._reading(written):
                self._call = written
                break
            if written and "ape" in written and not self._call:
                self._call = written
        if not self._call:  # perhaps without its result
            self._set(objects=True, null=False)
            alone = self._shown([user, self._made("")], TOOLS)
            if alone and "ape" in alone:
                self._call = alone.partition(USER)[2]
        self.own = bool(self._call)
        self._set(calls=self.own)
        told = [user, Message("assistant", SAID) if not self.own else self._made(""), result]
        self._set(results=self._has(told, RESULT, tools=TOOLS))
        if self.own:
            self._probe_shape(user)
        lasting = [Message("system", SYSTEM), *told]
        if self._reads.results and not self._has(lasting, SYSTEM, tools=TOOLS):
            self._set(system=False)  # shown only while a user message is last
        long = [user, self._made("", _ID), Message("tool", RESULT, _result_fields(_ID))]
        self._set(short_ids=self.own and self._shown(long, TOOLS) is None)

    def _probe_shape(self, user: Message) -> None:
        """Find whether a message may have several calls, and text beside one."""
        results = [
            Message("tool", RESULT, _result_fields(_SHORT_ID)),
            Message("tool", OTHER, _result_fields(_OTHER_ID, "now_at")),
        ]
        if not self._reads.results:
            results = []
        second = called("now_at", {} if self._reads.objects else "{}", _OTHER_ID)
        both = [user, self._made("", more=[second]), *results]
        texts = ("ape", "now_at", *((RESULT, OTHER) if results else ()))
        shown = self._shown(both, TOOLS)
        after = shown.rpartition(USER)[2] if shown else ""
        self._set(several=all(text in after for text in texts))
        shown = self._shown([user, self._made(SAID), *results[:1]], TOOLS)
        after = shown.rpartition(USER)[2] if shown else ""
        words, call = after.find(SAID), after.find("ape")
        self._set(beside=0 <= words < call)

    def _probe_thoughts(self) -> None:
        user = Message("user", USER)
        for name in ("reasoning_content", "thinking", "reasoning"):
            turns = [user, Message("assistant", SAID, {name: THOUGHT})]
            if self.own:
                extra = {**self._made("").extra, name: THOUGHT}
                turns = [user, Message("assistant", "", extra)]
                turns += (
                    [Message("tool", RESULT, _result_fields(_SHORT_ID))]
                    if self._reads.results
                    else []
                )
            if self._has(turns, THOUGHT, tools=TOOLS if self.own else None):
                self._set(thought=name)
                if self.own:
                    both = [user, Message("assistant", SAID, turns[1].extra), *turns[2:]]
                    self._set(one_text=self._shown(both, TOOLS) is None)
                return
        self._set(thought="")

    def _made(self, words: str, id_: str = _SHORT_ID, more: Sequence[Json] = ()) -> Message:
        """A message with a call."""
        given = _ARGUMENTS if self._reads.objects else json.dumps(_ARGUMENTS)
        content: Any = None if self._reads.null and not words else words
        return Message(
            "assistant", content, {"tool_calls": [called("zoo_find", given, id_), *more]}
        )

    def _reading(self, written: str = "") -> Format | None:
        """The format that reads the known call in `written`, with the least text left over."""
        best: tuple[int, bool, int] | None = None
        for index, form in enumerate(FORMATS):
            own = replace(form, ways=form.ways[:1])
            calls, left = found_calls(written or self._call, own, OFFER)
            if calls != [("zoo_find", _ARGUMENTS)]:
                continue
            unsigned = not any(sign in self.template for sign in form.signs)
            best = min(best, (left, unsigned, index)) if best else (left, unsigned, index)
        return FORMATS[best[2]] if best else None

    def _signed(self) -> Format | None:
        """The first format with a mark in the template's source."""
        for form in FORMATS:
            shows = self._reads.tools or not form.offers
            if shows and any(sign in self.template for sign in form.signs):
                return form
        return None

    def _has(
        self, messages: Sequence[Message], *texts: str, tools: Sequence[Json] | None = None
    ) -> bool:
        shown = self._shown(messages, tools)
        return shown is not None and all(text in shown for text in texts)

    def _shown(
        self, messages: Sequence[Message], tools: Sequence[Json] | None = None
    ) -> str | None:
        """The prompt; None where the template refuses or fails."""
        if self.broken:
            return None
        variables: Json = {"tools": list(tools)} if tools else {}
        parts = self._reads.parts
        messages = [
            Message(one.role, _in_parts(one.content), one.extra) if one.role in parts else one
            for one in messages
        ]
        try:
            return self.render(messages, variables)
        except TemplateError as error:
            if len(messages) == 1 and messages[0].role == "user" and not tools:
                self.broken = error.message
            if "was stopped" in error.message or "not valid Jinja" in error.message:
                self.broken = error.message
            return None

    def _between(self, text: str | None, before: str, behind: str) -> str:
        """The text between two texts; "" if one of them is missing."""
        if text is None or before not in text:
            return ""
        after = text.rpartition(before)[2]
        return after.partition(behind)[0] if behind in after else ""

    def _set(self, **found: Any) -> None:
        self._reads = replace(self._reads, **found)


_UNKNOWN = (
    "The chat template writes calls in a way of its own that LocalSpec does not know; functions "
    "are told in the system message, and calls are read as JSON in <tool_call>."
)


def _result_fields(id_: str, name: str = "zoo_find") -> Json:
    return {"tool_call_id": id_, "name": name}


def _in_parts(content: str) -> Any:
    return [{"type": "text", "text": content}]
