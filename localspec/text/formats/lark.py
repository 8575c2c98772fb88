"""Makes the Lark grammar of answers that are restricted to the offered functions."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from localspec.text.formats import notated, typed, writing
from localspec.text.formats.marks import opening
from localspec.text.formats.notated import Style, quoted
from localspec.text.formats.offer import Json, Offer
from localspec.text.formats.parts import Element, Format, Heads, Hole, Maybe, Way
from localspec.text.formats.values import GEMMA
from localspec.types import Token

_ANY = "/(?s:.*)/"
_SPACING = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


def grammar(form: Format, offer: Offer, tokens: Mapping[str, Token]) -> str:
    """Lark for answers with calls of the offer; with text only where no call is forced.

    `tokens` maps marks to single tokens of the vocabulary, which no characters can spell.
    """
    maker = _Maker(form, offer, tokens)
    return maker.of_heads(form.heads) if form.heads else maker.of_marks(form.ways[0])


@dataclass(slots=True)
class _Maker:
    form: Format
    offer: Offer
    tokens: Mapping[str, Token]

    def of_marks(self, way: Way) -> str:
        """An answer of thoughts, text and calls, separated by marks."""
        offer = self.offer
        if not offer.functions:
            return "\n".join(self._behind_thoughts(offer.text_rule or self._words()))
        begin = opening(way) if opening(way) != "{" else self._lead(way)
        mark = self._spelled(begin)
        rules = self._calls(way, begin)
        special = [part for part in mark.split(" ") if part.startswith("<[")]
        if offer.forced:
            answer = f"{mark} rest"
        elif offer.text_rule:
            answer = f"{offer.text_rule} | {mark} rest"
        elif special:  # any text may precede a token
            answer = f"{self._words()} ({mark[mark.index(special[0]) :]} rest)?"
        else:
            answer = "WORDS | before rest"
            rules.append(f"before[suffix={mark}]: {_ANY}")
            rules.append(f"WORDS: ~/(?s:.*){_escaped(begin)}(?s:.*)/")
        return "\n".join([*self._behind_thoughts(answer), *rules])

    def of_heads(self, heads: Heads) -> str:
        """An answer of messages with heads; a call may follow thoughts and text."""
        offer, again = self.offer, self._spelled(heads.again)
        before = f"({self._spelled(heads.thinks)} {_ANY} {again})?"
        if heads.before and not offer.forced:
            before += f" ({self._spelled(heads.before)} {_ANY} {again})?"
        says = f"{self._spelled(heads.says)} ({offer.text_rule or _ANY})"
        if not offer.functions:
            return f"start: {before} {says}"
        rules, calls = [], []
        for index, function in enumerate(offer.callable):
            head = self._spelled(heads.calls.format(name=function["name"]))
            if self.form.ways:
                way = self.form.ways[0]
                made, *more = self._one(way, function, index).split("\n")
                lead = self._spelled(way.opening + self._lead(way))
                body = f"{lead} {made} {self._spelled(way.closing)}"
            else:
                body, more = f"args_{index}", self._arguments(function, index)
            rules += [f"call_{index}: {head} {body}", *more]
            calls.append(f"call_{index}")
        answer = " | ".join([*calls, *([] if offer.forced else [says])])
        return "\n".join([f"start: {before} ({answer})", *rules])

    def _calls(self, way: Way, begin: str) -> list[str]:
        """The rule `rest`, for what follows `begin`, and the rules that it needs."""
        lead = self._lead(way)
        first = self._spelled((way.opening + lead)[len(begin) :])
        more = f" ({self._spelled(way.between + lead)} call)*" if self.offer.parallel else ""
        functions = self.offer.callable
        either = " | ".join(f"call_{index}" for index in range(len(functions)))
        rules = [f"rest: {first} call{more} {self._spelled(way.closing)}", f"call: {either}"]
        for index, function in enumerate(functions):
            rules.append(f"call_{index}: {self._one(way, function, index)}")
        return rules

    def _lead(self, way: Way) -> str:
        """The beginning of a call, up to where functions differ."""
        found = ""
        for part in way.call:
            if isinstance(part, Maybe):
                found += "".join(writing.marks_written(part))
            elif isinstance(part, str):
                found += part
            elif part is Hole.CALL:
                return found + f'{{"{way.keys[0]}": '
            elif part is Hole.PAIR:
                return found + "{"
            else:
                break
        return found

    def _one(self, way: Way, function: Json, index: int) -> str:  # noqa: C901 - each kind of part
        """One call after its lead, and the rules that it needs on lines of their own."""
        name, args = str(function["name"]), f"args_{index}"
        parts, rules, begun = [], self._arguments(function, index), False
        for part in way.call:
            begun = begun or isinstance(part, Hole)
            if not begun:
                continue
            match part:
                case Hole.NAME:
                    parts.append(quoted(name))
                case Hole.ID | Hole.INDEX:
                    parts.append("/[0-9]{1,9}/")
                case Hole.CALL:
                    head = quoted(f'{json.dumps(name)}, "{way.keys[1]}": ')
                    parts += [head, args, '"}"']
                case Hole.PAIR:
                    parts += [quoted(f"{json.dumps(name)}: "), args, '"}"']
                case Hole.OBJECT:
                    parts.append(args)
                case Hole.ELEMENTS | Hole.TREE:
                    inner, rules = self._elements(way, function, args)
                    parts += inner
                case Hole.KEYWORDS | Hole.NOTED:
                    inner, rules = self._notated(part, function, args)
                    parts += inner
                case Maybe():
                    parts += [self._spelled(text) for text in writing.marks_written(part)]
                    parts += ["/[0-9]+/"] if Hole.INDEX in part.parts else []
                case str():
                    parts.append(self._spelled(part))
        return "\n".join([" ".join(part for part in parts if part), *rules])

    def _whole(self, function: Json) -> bool:
        """Whether the arguments must match their schema."""
        return self.offer.forced or bool(function.get("strict"))

    def _arguments(self, function: Json, index: int) -> list[str]:
        given = typed.parameters(function) if self._whole(function) else {}
        return [f"args_{index}: %json {json.dumps(spaced(given or {'type': 'object'}))}"]

    def _notated(self, part: Hole, function: Json, name: str) -> tuple[list[str], list[str]]:
        """Arguments in Python's or in Gemma's notation."""
        given = typed.parameters(function)
        style = PYTHON if part is Hole.KEYWORDS else self._gemma()
        rules = notated.Rules(name, style, given)
        fields = rules.fields(given, "=" if part is Hole.KEYWORDS else style.colon)
        inner = [fields] if part is Hole.KEYWORDS else ['"{"', fields, '"}"']
        return inner, rules.rules

    def _gemma(self) -> Style:
        quote = self._spelled(GEMMA.quotes[0])
        if quote.startswith("<["):
            string = f"{quote} {_ANY} {quote}"
        else:
            string = f"NAME_text[suffix={quote}]: {_ANY}\n{quote} NAME_text"
        return Style(
            words={"true": "true", "false": "false", "null": "null"},
            string=string,
            key=writing.noted_key,
            constant=writing.noted,
            comma=",",
            colon=":",
            any_key="/[A-Za-z_][A-Za-z0-9_]{0,40}/",
        )

    def _elements(self, way: Way, function: Json, prefix: str) -> tuple[list[str], list[str]]:
        """The elements of a function's arguments, in the order of the schema."""
        element = way.element
        if element is None:
            raise ValueError("this way has no elements")
        if not self._whole(function):
            return self._any_elements(element, prefix)
        given = typed.parameters(function)
        needed = given.get("required")
        inner, rules = [], []
        for index, (name, wanted) in enumerate(typed.table(given, "properties").items()):
            rule = f"{prefix}_{index}"
            made, more = self._element(element, quoted(name), wanted, given, rule)
            must = isinstance(needed, list) and name in needed
            inner.append(rule if must else f"{rule}?")
            rules += [f"{rule}: {made}", *more]
        return inner, rules

    def _element(
        self, element: Element, key: str, wanted: Any, given: Json, rule: str
    ) -> tuple[str, list[str]]:
        """One argument in Lark, and the rules that it needs."""
        allowed = typed.types(wanted, given)
        text = "string" in allowed or wanted is None
        holes = {Hole.KEY: key, Hole.TYPE: self._spelled(_type(element, text=text))}
        place = element.parts.index(Hole.VALUE)
        head = [self._piece(part, holes) for part in element.parts[:place]]
        closing, *rest = element.parts[place + 1 :]
        tail = [self._piece(part, holes) for part in rest]
        if text:
            made, rules = self._text(str(closing), wanted, rule)
        else:
            made, rules = self._json(str(closing), wanted, given, rule)
        return " ".join([*head, made, *tail]), rules

    def _piece(self, part: str | Hole, holes: Mapping[Hole, str]) -> str:
        return self._spelled(part) if isinstance(part, str) else holes[part]

    def _json(self, closing: str, wanted: Json, given: Json, rule: str) -> tuple[str, list[str]]:
        """A value that is no string, and the mark after it."""
        shared: Json = {key: given[key] for key in ("$defs", "definitions") if key in given}
        schema = json.dumps(spaced({**wanted, **shared}))
        return f"{rule}_json {self._spelled(closing)}", [f"{rule}_json: %json {schema}"]

    def _text(self, closing: str, wanted: Any, rule: str) -> tuple[str, list[str]]:
        """A string, and the mark after it."""
        choices = wanted.get("enum") if isinstance(wanted, dict) else None
        if isinstance(choices, list) and choices and all(isinstance(one, str) for one in choices):
            return f"({' | '.join(map(quoted, choices))}) {self._spelled(closing)}", []
        spelled = self._spelled(closing)
        if "<[" in spelled:
            return f"{_ANY} {spelled[spelled.index('<[') :]}", []
        mark, line, behind = closing.lstrip("\n").partition("\n")
        ends = quoted(line + behind) if line else ""
        return f"{rule}_text {ends}", [f"{rule}_text[suffix={quoted(mark)}]: {_ANY}"]

    def _any_elements(self, element: Element, prefix: str) -> tuple[list[str], list[str]]:
        """Any elements, for a function without a strict schema."""
        rule = f"{prefix}_any"
        made, more = self._element(element, '/[^<>"\\n]+/', None, {}, rule)
        return [f"({rule})*"], [f"{rule}: {made}", *more]

    def _words(self) -> str:
        """Any text, with single-token marks around it where the format has some."""
        marks = [mark for pair in self.form.words for mark in (pair.opening, pair.closing)]
        own = [self._spelled(mark) for mark in marks if mark.strip() in self.tokens]
        return f"({_ANY} ({' | '.join(own)}) )* {_ANY}" if own else _ANY

    def _behind_thoughts(self, answer: str) -> list[str]:
        """The start rule of `answer`, after thoughts if the model thinks before it answers."""
        offer = self.offer
        if not self.form.thoughts or not (offer.thinks or offer.thinking):
            return [f"start: {answer}"]
        pair = self.form.thoughts[0]
        closing = self._spelled(pair.closing)
        if "<[" in closing:
            thought = f"thought: {_ANY} {closing[closing.index('<[') :]}"
        else:
            thought = f"thought[suffix={closing}]: {_ANY}"
        before = "thought BLANKS"
        if not offer.thinking:
            before = f"({self._spelled(pair.opening.strip())} thought BLANKS)?"
        return [f"start: {before} ({answer})", thought, "BLANKS: /[ \\n]{0,4}/"]

    def _spelled(self, text: str) -> str:
        """A text in Lark: single tokens for marks that have one, else characters."""
        marks = sorted((mark for mark in self.tokens if mark in text), key=len, reverse=True)
        if not marks:
            return quoted(text) if text else ""
        pieces = re.split(f"({'|'.join(map(re.escape, marks))})", text)
        spelled = (
            f"<[{self.tokens[piece]}]>" if piece in self.tokens else quoted(piece)
            for piece in pieces
            if piece
        )
        return " ".join(spelled)


def spaced(given: Json) -> Json:
    """The schema for JSON with exactly one blank after commas and colons."""
    return {**given, "x-guidance": {**_SPACING, "lenient": True}}


PYTHON = Style(
    words={"true": "True", "false": "False", "null": "None"},
    string='%json {"type": "string"}',
    key=str,
    constant=writing.python,
    comma=", ",
    colon=": ",
    any_key='/"[A-Za-z0-9_ -]{1,40}"/',
)


def _type(element: Element, *, text: bool) -> str:
    return element.text_type if text else element.other_type


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in ".^$*+?()[]{}|\\/" else char for char in text)
