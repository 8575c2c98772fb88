"""The manual pages: as they are kept, complete, found by `man`, and drawn without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli import help as help_page
from localspec.cli import man
from localspec.cli.main import COMMANDS
from localspec.cli.roff import escaped
from localspec.paths import shipped

PAGES = Path(__file__).resolve().parents[2] / "docs" / "man"
KNOWN = {".TH", ".ad", ".SH", ".SS", ".PP", ".TP", ".B", ".I", ".RI", ".RS", ".RE", ".nf", ".fi"}


def kept() -> dict[str, str]:
    """The pages in docs by the names of their files."""
    return {path.name: path.read_text(encoding="utf-8") for path in PAGES.glob("*/*")}


def test_the_pages_are_what_the_program_writes(tmp_path: Path) -> None:
    """docs/man is what `python -m localspec.cli.man docs/man` writes; what is no page now goes."""
    assert kept() == man.pages()
    gone = tmp_path / "man1" / "localspec-gone.1"
    gone.parent.mkdir()
    gone.touch()
    assert CliRunner().invoke(man.write, [str(tmp_path)]).exit_code == 0
    written = {path.relative_to(tmp_path) for path in tmp_path.glob("*/*")}
    assert written == {path.relative_to(PAGES) for path in PAGES.glob("*/*")}


def test_no_command_and_no_option_is_missing() -> None:
    """Each stands on the page of its first word, which localspec(1) names."""
    pages = man.pages()
    for name in COMMANDS:
        assert f"\n\\fB{escaped(name)}\\fR\n" in pages["localspec.1"]
    for context in list(help_page.commands())[1:]:
        page = pages[f"localspec-{context.command_path.split()[1]}.1"]
        assert escaped(context.command_path) in page
        for parameter in context.command.get_params(context):
            names, _ = parameter.get_help_record(context) or ("", "")
            assert escaped(names) in page


def test_no_key_of_the_configuration_is_missing() -> None:
    """Each with its default, below its section."""
    page = man.pages()["localspec-config.5"]
    text = shipped("config.toml").read_text(encoding="utf-8")
    place = 0
    for line in text.splitlines():
        if line.startswith("#") or not line:
            continue
        place = page.index(line if line.startswith("[") else escaped(line), place)
    assert len(tomllib.loads(text)) > 5


def test_what_looks_like_a_request_is_text() -> None:
    """No line of a help text or comment becomes a request of roff."""
    for text in kept().values():
        requests = {line.split()[0] for line in text.splitlines() if re.match(r"[.']", line)}
        assert requests <= KNOWN
    assert escaped(".TH") == "\\&.TH"
    assert escaped("\\fB-x") == "\\efB\\-x"


@pytest.mark.parametrize(
    "renderer", [("groff", "-ww", "-man", "-Tutf8"), ("mandoc", "-Tlint", "-Werror")]
)
def test_the_pages_render_without_a_warning(renderer: tuple[str, ...]) -> None:
    """By the programs that `man` is made of on Linux and on macOS and the BSDs."""
    if not shutil.which(renderer[0]):
        pytest.skip(f"there is no {renderer[0]} here")
    for page in PAGES.glob("*/*"):
        done = subprocess.run([*renderer, page], capture_output=True, text=True, check=False)
        assert (page.name, done.returncode, done.stderr) == (page.name, 0, "")


@pytest.mark.skipif(not shutil.which("man"), reason="there is no man here")
def test_man_finds_them() -> None:
    """By the words of the command, and the file apart from the command of the same name."""
    for asked, name in (
        (("localspec",), "localspec.1"),
        (("localspec-chat",), "localspec-chat.1"),
        (("1", "localspec-config"), "localspec-config.1"),
        (("5", "localspec-config"), "localspec-config.5"),
    ):
        found = subprocess.run(
            ["man", "-M", str(PAGES), "-w", *asked], capture_output=True, text=True, check=True
        )
        assert Path(found.stdout.strip()).name == name
