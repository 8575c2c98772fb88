"""The Makefile's promise about prompts: they are text, and nothing in them is ever run."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

REPOSITORY = Path(__file__).resolve().parent.parent
RECORDER = '#!/bin/sh\nprintf "%s\\0" "$@" >> said\n'
PLAIN_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
}


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone that is already installed, whose `localspec` writes down what it is asked."""
    root = tmp_path_factory.mktemp("clone")
    binaries = root / ".venv" / "bin"
    binaries.mkdir(parents=True)
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, root)
    (binaries / "python").symlink_to(sys.executable)
    recorder = binaries / "localspec"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    for stamp in (".llama", ".installed", ".checks"):
        (root / ".venv" / stamp).touch()
    return root


def asked(clone: Path, *arguments: str, **environment: str) -> list[str]:
    """The words with which `make chat` called `localspec`."""
    said = clone / "said"
    said.unlink(missing_ok=True)
    subprocess.run(
        ["make", "-s", "chat", *arguments],
        cwd=clone,
        env=PLAIN_ENVIRONMENT | environment,
        check=True,
        timeout=60,
    )
    return said.read_bytes().decode().split("\0")[:-1]


@settings(max_examples=25)
@given(
    st.text(
        st.characters(codec="utf-8", exclude_characters="\0") | st.sampled_from("$(){}'\"`\\#;\n"),
        min_size=1,
    )
)
def test_a_prompt_arrives_letter_for_letter(clone: Path, prompt: str) -> None:
    """Quotes, dollars, newlines: make and the shell read none of them. Make trims the left edge."""
    expected = prompt.lstrip(" \t\n\v\f\r")
    chat = ["chat", "--", expected] if expected else ["chat"]
    assert asked(clone, f"PROMPT={prompt}") == ["models", "pull", *chat]


def test_nothing_in_a_prompt_is_run(clone: Path) -> None:
    """Neither make's functions nor the shell's substitutions."""
    prompt = "$(shell touch pwned) $$(touch pwned) `touch pwned`; touch pwned \" ' && touch pwned"
    assert asked(clone, f"PROMPT={prompt}")[-1] == prompt
    assert not (clone / "pwned").exists()


def test_a_prompt_is_given_to_make_and_not_inherited(clone: Path) -> None:
    """Shells keep their own PROMPT in the environment; it is no question."""
    assert asked(clone, PROMPT="%n@%m %~ %#") == ["models", "pull", "chat"]


def test_recipes_name_modules_and_tests_that_exist() -> None:
    """Also those of targets that few people run, which a renamed module would end."""
    recipes = (REPOSITORY / "Makefile").read_text()
    modules = re.findall(r"-m (localspec[\w.]*)", recipes)
    modules += [
        ".".join(each) for each in re.findall(r"from (localspec[\w.]*) import (\w+)", recipes)
    ]
    files = re.findall(r"tests/[\w/]+\.py", recipes)
    assert modules
    assert files
    assert [each for each in modules if importlib.util.find_spec(each) is None] == []
    assert [each for each in files if not (REPOSITORY / each).exists()] == []
