"""Values written as TOML are read again as they were."""

from __future__ import annotations

import tomllib
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from localspec import config, toml
from localspec.config import Config

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
NAMES = st.from_regex(r"\A[A-Za-z0-9_-]{1,8}\Z")
SCALARS = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXTS
)
VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES | TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(NAMES, VALUES, max_size=5))
def test_what_is_written_is_read(values: dict[str, Any]) -> None:
    """Every value, also text with quotes, lines and control characters."""
    assert tomllib.loads(toml.write(values)) == values


def test_what_is_none_is_left_out() -> None:
    """TOML has no word for it."""
    assert toml.write({"a": None, "b": {"c": None, "d": 1}}) == "[b]\nd = 1\n"


def test_a_configuration_survives() -> None:
    """It is what a daemon of its own is given."""
    settings = config.parse("[sampling]\nlogit_bias = { 7 = -1.5 }\n[engine]\nslots = 2\n")
    for one in (Config(), settings):
        text = toml.write(msgspec.to_builtins(one, str_keys=True))
        assert config.parse(text) == one
