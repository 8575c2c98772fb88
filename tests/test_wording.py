"""Faults of values in words: the path, and what the value must be."""

from __future__ import annotations

import re
from typing import Annotated, Literal

import msgspec
import pytest
from msgspec import Meta

from localspec import wording


class Inner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A table in a table."""

    name: Annotated[str, Meta(min_length=2, max_length=4)]


class Wanted(msgspec.Struct):
    """Values of every kind, and with every bound."""

    count: Annotated[int, Meta(ge=-2, le=9)] | None = None
    share: Annotated[float, Meta(gt=0, lt=1)] = 0.5
    heat: Annotated[float, Meta(le=100.0)] = 0.0
    items: Annotated[tuple[int, ...], Meta(min_length=1, max_length=2)] = (1,)
    table: Annotated[dict[str, int], Meta(max_length=1)] = {}
    inner: Inner = Inner("abc")
    kind: Literal["a", "b"] = "a"
    whole: int | Annotated[float, Meta(multiple_of=1)] = 0
    pair: tuple[int, str] = (0, "")


FAULTS = [
    ('{"count": -3}', "count", "it must be at least -2."),
    ('{"count": 10}', "count", "it must be at most 9."),
    ('{"count": 1.5}', "count", "it must be a whole number, not a number with a fraction."),
    ('{"share": 0}', "share", "it must be more than 0."),
    ('{"share": 1}', "share", "it must be less than 1."),
    ('{"heat": 1e308}', "heat", "it must be at most 100."),
    ('{"heat": 1e999}', "heat", "Number out of range."),
    ('{"items": []}', "items", "it must have at least 1 entry."),
    ('{"items": [1, 2, 3]}', "items", "it must have at most 2 entries."),
    ('{"items": [1, "x"]}', "items[1]", "it must be a whole number, not text."),
    ('{"table": {"a": 1, "b": 2}}', "table", "it must have at most 1 key."),
    ('{"inner": {"name": "x"}}', "inner.name", "it must have at least 2 characters."),
    ('{"inner": {"name": "abcde"}}', "inner.name", "it must have at most 4 characters."),
    ('{"inner": {}}', "inner", "name is missing."),
    ('{"inner": {"name": "abc", "size": 1}}', "inner", "there is no key size."),
    ('{"inner": null}', "inner", "it must be a table of keys and values, not nothing."),
    ('{"whole": 1.5}', "whole", "it must be a whole number, not a number with a fraction."),
    ('{"whole": "1"}', "whole", "it must be a whole number, not text."),
    ('{"pair": [1]}', "pair", "it must have 2 entries."),
    ('{"kind": "c"}', "kind", '"c" is none of its values, which are a, b.'),
    ("[]", "", "it must be a table of keys and values, not a list."),
]


@pytest.mark.parametrize(("text", "path", "sentence"), FAULTS)
def test_a_fault_is_a_path_and_a_sentence(text: str, path: str, sentence: str) -> None:
    """In words that need no knowledge of types, with the bound that was missed."""
    with pytest.raises(msgspec.ValidationError) as caught:
        msgspec.json.decode(text, type=Wanted)
    found = wording.fault(caught.value, Wanted)
    assert (found.path, found.sentence) == (path, sentence)
    assert not re.search("`|Expected", found.sentence)
