"""Where calls begin in an answer: the marks of each way, and the calls behind them, in Lark.

A lexer reads words up to where a call begins, and never goes back. So words contain no beginning of
a call that a reader would try, and behind each such beginning a call must follow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from localspec.text.formats.bound import Arguments
from localspec.text.formats.calls import ARGUMENT_KEYS, NAME_KEYS, OTHER_KEYS
from localspec.text.formats.marks import inner_mark
from localspec.text.formats.offer import Json, Offer
from localspec.text.formats.parts import ARGUMENTS, Format, Hole, Maybe, Part, Way
from localspec.text.formats.spelled import GAP, SOME, RuleList, Spelling, bounded, escaped
from localspec.text.formats.tape import BLANK, tokens

_NUMBER = f"/{SOME}[0-9]{{1,9}}/"
_ID = f"/{SOME}[A-Za-z0-9_.-]{{1,64}}/"
_FIELD = rf'"({"|".join(sorted(OTHER_KEYS))})"{GAP}:{GAP}("[\w:.-]{{0,40}}"|[0-9]{{1,9}}|null)'
_FIELDS = f"({_FIELD}{GAP},{GAP})?"
_MORE = f"({GAP},{GAP}{_FIELD})?"
_GIVEN = rf'"({"|".join(ARGUMENT_KEYS)})"{GAP}:{GAP}'
_OBJECT = rf"{GAP}\{{"
_MANY = 16
"""The most functions of which each may begin a call by its name alone, in each way. This takes a
pattern for each function, and with 40 of them llguidance gives up."""
_OPENED, _NAMED = "_opened", "_named"
"""How much of a call its beginning has read: the bracket, or all up to the mark behind the name."""


class Start(NamedTuple):
    """A beginning of calls: a pattern for it, and Lark for the text behind it.

    `alone`: it counts only at the beginning of a part of the answer.
    """

    pattern: str
    behind: str
    alone: bool


class _Begun(NamedTuple):
    """A way, and its marks up to the first part that differs between calls.

    `whole`: the way's opening is among them.
    """

    way: Way
    marks: list[str]
    whole: bool


@dataclass(slots=True)
class Starts:
    """The beginnings of calls of one answer, and the rules that they need."""

    form: Format
    offer: Offer
    spelling: Spelling
    rules: RuleList = field(default_factory=RuleList)
    _called: list[Json] = field(init=False)
    _arguments: list[Arguments] = field(init=False)
    _made: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        pretends = () if self.offer.forced else sorted(self.form.pretends)
        self._called = [*self.offer.callable, *({"name": one} for one in pretends)]
        self._arguments = [
            Arguments(
                f"a{at}",
                one,
                self.offer.forced or bool(one.get("strict")),
                self.spelling,
                self.rules,
            )
            for at, one in enumerate(self._called)
        ]

    # -- what begins calls

    def of_words(self) -> list[Start]:
        """The beginnings of calls in words. Any mark of calls counts as one."""
        return [one for begun in self._allowed() for one in self._in_words(begun)]

    def of_thoughts(self) -> list[Start]:
        """The beginnings of calls that end thoughts.

        Thoughts often only mention a mark. So a mark that is no single token counts only together
        with more of a call.
        """
        found: list[Start] = []
        for begun in self._allowed():
            way, marks, _ = begun
            if not marks or way.first or (way.known and _opens(way) is Hole.CALL):
                continue
            if not self.spelling.is_text(marks[0]):
                found += self._in_words(begun)
            elif _opens(way) in (Hole.CALL, Hole.PAIR):
                pattern = f"{_joined(marks)}{GAP}\\{{"
                found.append(Start(pattern, self._run(begun, taken=_OPENED), alone=False))
            elif len(marks) > 1:
                found.append(Start(_joined(marks), self._run(begun), alone=False))
            else:
                found += self._by_name(begun)
        return found

    def not_words(self) -> list[str]:
        """Patterns of all that a reader would take for a call's beginning within words."""
        found = [self._first(marks) for way, marks, _ in self._ways() if marks and not way.known]
        for way, marks, _ in self._ways():
            if way.known and _opens(way) in (Hole.CALL, Hole.PAIR):
                found.append(self._object_name(self._names()))
            elif way.known and not (marks and self._shared(marks)):
                found.append(self._named(way, marks, self._names()))
        return found

    def _allowed(self) -> Iterator[_Begun]:
        """The ways that the grammar allows.

        With many functions these are the family's own, and those that do not need each name.
        """
        many = len(self._called) > _MANY
        own = self.form.ways[:1]
        for begun in self._ways():
            if not begun.way.odd and (not many or begun.way in own or not begun.way.known):
                yield begun

    def _ways(self) -> Iterator[_Begun]:
        """Each way with its marks, and again without its opening if calls have their own mark."""
        seen: list[list[str]] = []
        for way in self.form.ways:
            if not self._callable(way):
                continue
            inner = [one for part in _lead(way) for one in tokens(part)]
            yield _Begun(way, [*tokens(way.opening), *inner], whole=True)
            if inner_mark(way) and inner not in seen:  # a reader tries the first way with this mark
                seen.append(inner)
                yield _Begun(way, inner, whole=False)

    def _callable(self, way: Way) -> list[int]:
        """The functions, by index, that this way can call: some have no place for arguments."""
        takes = any(part in ARGUMENTS or part in (Hole.CALL, Hole.PAIR) for part in way.call)
        return [at for at, one in enumerate(self._arguments) if takes or one.may_be_empty]

    def _shared(self, marks: Sequence[str]) -> bool:
        """Whether the first mark alone begins a call.

        It does if it is a single token, or the first mark of a way whose marks are unambiguous.
        """
        firsts = [marks[0] for way, marks, _ in self._ways() if marks and not way.known]
        return not self.spelling.is_text(marks[0]) or marks[0] in firsts

    def _first(self, marks: Sequence[str]) -> str:
        """The pattern of the first mark; of all marks if the first begins like a word."""
        return _joined(marks) if marks[0][0].isalpha() else escaped(marks[0])

    def _in_words(self, begun: _Begun) -> Iterator[Start]:
        """The beginning by marks or, where these are ambiguous, one by each function's name."""
        way, marks, _ = begun
        if not marks or (way.known and not self._shared(marks)):
            yield from self._by_name(begun)
            return
        size = 1
        while marks[0][0].isalpha() and size < len(marks) and self.spelling.is_text(marks[size]):
            size += 1
        if not self.spelling.is_text(marks[0]):
            size = 0
        single: list[str] = []
        pattern = _joined(marks[:size])
        if not size or (size < len(marks) and marks[0][0].isalpha()):
            before, single = self.spelling.parted(marks[size])
            pattern = f"{pattern}{GAP if size else ''}{escaped(before)}"
            size += 1
        rest = [mark for text in marks[size:] for mark in self.spelling.marks(text)]
        yield Start(pattern, " ".join([*single, *rest, self._run(begun)]), way.first)

    def _by_name(self, begun: _Begun) -> Iterator[Start]:
        """The beginnings by the name of each function."""
        way, marks, _ = begun
        before = f"{_joined(marks)}{GAP if marks else ''}"
        for at in self._callable(way):
            name = escaped(str(self._called[at]["name"]))
            if _opens(way) is Hole.CALL:
                pattern = rf"{before}\{{{GAP}{_FIELDS}{_key(name)}"
            elif _opens(way) is Hole.PAIR:
                pattern = rf'{before}\{{{GAP}"{name}"'
            else:
                pattern = before + self._named(way, [], name, ends=False)
            yield Start(pattern, self._run(begun, at, _NAMED), way.first)

    def _names(self) -> str:
        """A pattern of any function's name."""
        return "|".join(map(escaped, sorted({*self.offer.names, *self.form.pretends})))

    def _object_name(self, names: str) -> str:
        key, name = "|".join(NAME_KEYS), rf"(functions\.)?({names})(\.call)?"
        return rf"""["']({key})["']{GAP}:{GAP}["']{name}["']"""

    def _named(self, way: Way, marks: Sequence[str], names: str, *, ends: bool = True) -> str:
        """The pattern of the marks, a name, and the mark behind it.

        A `known` way without such a mark has `{` in its place if `ends`, and blanks if not.
        """
        behind = _behind_name(way)
        text = tokens(behind)[0] if behind.strip(BLANK) else ""
        if text and not self.spelling.is_text(text):
            text = ""
        tail = f"{GAP}{escaped(text)}" if text else ""
        if way.known and not text:
            tail = rf"{GAP}\{{" if ends else GAP
        return f"{_joined(marks)}{GAP if marks else ''}(functions\\.)?({names}){tail}"

    # -- calls

    def json(self, at: int) -> str:
        """The rule for the arguments of one function as a JSON object."""
        return self._arguments[at].json()

    def _run(self, begun: _Begun, only: int | None = None, taken: str = "") -> str:
        """Lark for calls behind their beginning, up to the mark that ends all of them.

        `taken` says how much of the first call was read. With `only`, it calls that function.
        """
        way, _, whole = begun
        first = self._any_call(way, taken) if only is None else self._call(way, only, taken)
        if not way.opening:
            return first
        between = way.between.strip(BLANK)
        comma = f"/{SOME}{escaped(between)}/ " if between else ""
        lead = [mark for part in _lead(way) for mark in self.spelling.marks(part)]
        closing = " ".join(self.spelling.marks(way.closing))
        if not whole:
            return f"{first} ({closing})?"
        again = " ".join([*lead, self._any_call(way)])
        more = f"({comma}{again})*" if self.offer.parallel else ""
        return " ".join(part for part in (first, more, closing) if part)

    def _any_call(self, way: Way, taken: str = "") -> str:
        """The rule for the rest of any call, after its leading marks and what was `taken` of it."""
        name = f"w{self.form.ways.index(way)}{taken}"
        if name not in self._made:
            self._made.add(name)
            made = " | ".join(self._call(way, at, taken) for at in self._callable(way))
            self.rules.append(f"{name}: {made}")
        return name

    def _call(self, way: Way, at: int, taken: str) -> str:
        """The rule for the rest of one function's call, as in `_any_call`."""
        name = f"w{self.form.ways.index(way)}{taken}_{at}"
        if name not in self._made:
            self._made.add(name)
            self.rules.append(f"{name}: {self._parts(way, at, taken)}")
        return name

    def _parts(self, way: Way, at: int, taken: str) -> str:
        made: list[str] = []
        parts = [*way.call[len(_lead(way)) :]]
        if taken == _NAMED and Hole.NAME in parts:  # the name and the mark behind it were read
            parts = parts[parts.index(Hole.NAME) + 1 :]
            behind = tokens(_behind_name(way))
            if behind and self.spelling.is_text(behind[0]):
                parts[0] = "\n".join(behind[1:])
        for part in parts:
            if part in (Hole.CALL, Hole.PAIR):
                made.append(self._object(way, at, taken))
            elif part is Hole.NAME:
                made.append(rf"/{SOME}(functions\.)?{escaped(str(self._called[at]['name']))}/")
            else:
                made.append(self._part(way, part, at))
        return " ".join(part for part in made if part)

    def _part(self, way: Way, part: Part, at: int) -> str:
        if isinstance(part, str):
            return " ".join(self.spelling.marks(part))
        if isinstance(part, Maybe):
            if part.parts == ("functions.",):  # part of the name
                return ""
            return f"({' '.join(self._part(way, one, at) for one in part.parts)})?"
        if part is Hole.INDEX:
            return _NUMBER
        return _ID if part is Hole.ID else self._arguments[at].of(part, way)

    def _object(self, way: Way, at: int, taken: str) -> str:
        """The rule for the rest of a JSON object of name and arguments, behind what was `taken`."""
        pair = Hole.PAIR in way.call
        rule = f"o{at}{taken}{'_pair' if pair else ''}"
        if rule not in self._made:
            self._made.add(rule)
            name, given = escaped(str(self._called[at]["name"])), self._arguments[at]
            ways = (
                self._pair(name, given, taken) if pair else self._named_object(name, given, taken)
            )
            if not pair and taken != _NAMED:
                begin = f"{'' if taken else _OBJECT}{GAP}{_FIELDS}"
                last = bounded(rf"{GAP},{GAP}{_FIELDS}{_key(name)}{_MORE}{GAP}\}}")
                ways.append(f"{bounded(begin + _GIVEN)} {given.json()} {last}")
            self.rules.append(f"{rule}: {' | '.join(ways)}")
        return rule

    def _pair(self, name: str, given: Arguments, taken: str) -> list[str]:
        """An object whose only key is the name."""
        key = {"": rf'{_OBJECT}{GAP}"{name}"', _OPENED: rf'{GAP}"{name}"', _NAMED: ""}[taken]
        return [f"{bounded(f'{key}{GAP}:{GAP}')} {given.json()} /{SOME}\\}}/"]

    def _named_object(self, name: str, given: Arguments, taken: str) -> list[str]:
        """An object with the name before the arguments, or without arguments."""
        begin = {"": f"{_OBJECT}{GAP}", _OPENED: GAP, _NAMED: ""}[taken]
        head = f"{begin}{_FIELDS}{_key(name)}" if taken != _NAMED else ""
        closing = bounded(rf"{_MORE}{GAP}\}}")
        ways = [f"{bounded(f'{head}{_MORE}{GAP},{GAP}{_GIVEN}')} {given.json()} {closing}"]
        if given.may_be_empty:
            ways.append(bounded(rf"{head}{_MORE}{GAP}\}}"))
        return ways


def _key(name: str) -> str:
    """The pattern of the field with a function's name."""
    return rf'"({"|".join(NAME_KEYS)})"{GAP}:{GAP}"(functions\.)?{name}"'


def _lead(way: Way) -> list[str]:
    """The marks of a call before its first hole or optional part."""
    found: list[str] = []
    for part in way.call:
        if not isinstance(part, str):
            break
        found.append(part)
    return found


def _opens(way: Way) -> Hole | None:
    """The first hole of a call; None if it has none."""
    return next((part for part in way.call if isinstance(part, Hole)), None)


def _behind_name(way: Way) -> str:
    at = way.call.index(Hole.NAME) + 1
    behind = way.call[at] if at < len(way.call) else ""
    return behind if isinstance(behind, str) else ""


def _joined(marks: Sequence[str]) -> str:
    """Marks with blanks between them, as a pattern."""
    return GAP.join(map(escaped, marks))
