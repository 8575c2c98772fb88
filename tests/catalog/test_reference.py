"""Tests of references to models elsewhere, and of the files they lead to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.catalog.reference import Reference, parse
from localspec.catalog.variants import File, choose, variants
from localspec.errors import PullError

GB = 10**9
PARTS = [File(f"Q8_0/m-Q8_0-0000{part}-of-00003.gguf", 3 * GB) for part in (1, 2, 3)]
FILES = [
    File("README.md", 100),
    File("mmproj-m-F16.gguf", GB),
    File("m-Q4_K_M.gguf", 5 * GB),
    File("m-UD-Q2_K_XL.gguf", 2 * GB),
    File("m.Q3_K_S.gguf", 3 * GB),
    File("m-fp16.gguf", 16 * GB),
    *PARTS,
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("someone/m-GGUF", Reference("someone/m-GGUF")),
        ("someone/m-GGUF:Q4_K_M", Reference("someone/m-GGUF", "Q4_K_M")),
        ("someone/m:q/m-Q8_0.gguf", Reference("someone/m", "q/m-Q8_0.gguf")),
        ("hf.co/someone/m:latest", Reference("someone/m")),
        ("hf.co/someone/m:Q4_0", Reference("someone/m", "Q4_0")),
        ("https://huggingface.co/someone/m", Reference("someone/m")),
        ("https://huggingface.co/someone/m/tree/main", Reference("someone/m")),
        ("https://hf.co/someone/m/blob/main/a%20b.gguf?x=1", Reference("someone/m", "a b.gguf")),
        ("huggingface.co/a/b/resolve/main/q/c.gguf", Reference("a/b", "q/c.gguf")),
        ("https://x.org/d/m.gguf", Reference("", "m.gguf", "https://x.org/d/m.gguf")),
        ("qwen3-8b", None),
        ("./some/file.gguf", None),
        ("/models/file.gguf", None),
    ],
)
def test_what_people_write_is_understood(text: str, expected: Reference | None) -> None:
    """Model names and paths are no references; pages and files of the Hub are repositories."""
    assert parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["ftp://a/b.gguf", "../../etc/passwd/x", "a/b:../../c.gguf", "https://x.org/", "a//b", "a/b:"],
)
def test_what_leads_nowhere_is_said(text: str) -> None:
    """Invalid text is no reference, or is refused; it never leaves its repository."""
    try:
        found = parse(text)
    except PullError:
        return
    assert found is None or ".." not in f"{found.repo}/{found.wanted}"


@given(st.text(max_size=60))
def test_any_text_is_a_reference_or_none_or_refused(text: str) -> None:
    """A found reference never leaves its repository."""
    try:
        found = parse(text)
    except PullError:
        return
    assert found is None or not {"", ".", ".."} & set(found.repo.split("/")) or found.url


def test_a_repository_has_its_models_and_nothing_else() -> None:
    """Parts are one model, a projector is none, and a set that lacks a part is left out."""
    assert [(each.label, each.size_bytes // GB) for each in variants(FILES)] == [
        ("UD-Q2_K_XL", 2),
        ("Q3_K_S", 3),
        ("Q4_K_M", 5),
        ("Q8_0", 9),
        ("F16", 16),
    ]
    assert [file.path for file in variants(FILES)[3].files] == [file.path for file in PARTS]
    assert "Q8_0" not in {each.label for each in variants(FILES[:-1])}


@pytest.mark.parametrize(
    ("room", "label", "why"),
    [(64, "Q4_K_M", "fits"), (5, "Q3_K_S", "Q4_K_M would not fit"), (3, "UD-Q2_K_XL", "Q3_K_S")],
)
def test_four_bits_are_taken_where_they_fit_and_fewer_where_not(
    room: int, label: str, why: str
) -> None:
    """The reason names the quantizations passed over."""
    choice = choose(variants(FILES), "", room * GB)
    assert choice.variant.label == label
    assert why in choice.why


@pytest.mark.parametrize("wanted", ["q8_0", "Q8_0/m-Q8_0-00001-of-00003.gguf", "m-q8_0.gguf"])
def test_what_is_named_is_taken_however_large(wanted: str) -> None:
    """A model is chosen by quantization, by file, or by the first of its parts."""
    assert choose(variants(FILES), wanted, GB).variant.label == "Q8_0"


def test_nothing_that_fits_and_nothing_of_that_name_are_sentences_with_what_there_is() -> None:
    """The error lists the available files."""
    for wanted in ("", "Q9_X"):
        with pytest.raises(PullError, match=r"fits here|no \"Q9_X\"") as caught:
            choose(variants(FILES), wanted, GB)
        assert "UD-Q2_K_XL, Q3_K_S, Q4_K_M, Q8_0, F16" in caught.value.fix
