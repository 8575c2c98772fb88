"""Groups alone, names that are none, and help in every way in which it is asked for."""

from __future__ import annotations

import click
import pytest
from click.testing import CliRunner

from localspec.cli.help import commands
from localspec.cli.main import cli

GROUPS = [
    each.command_path.split()[1:] for each in commands() if isinstance(each.command, click.Group)
]


@pytest.mark.parametrize("path", GROUPS)
def test_a_group_alone_shows_its_help(path: list[str]) -> None:
    """On stdout, with exit code 0: nothing went wrong."""
    alone, asked = (CliRunner().invoke(cli, [*path, *more]) for more in ((), ("--help",)))
    assert (alone.exit_code, alone.stdout, alone.stderr) == (0, asked.stdout, "")


@pytest.mark.parametrize("path", [each.command_path.split()[1:] for each in commands()])
def test_help_is_the_same_however_it_is_asked_for(path: list[str]) -> None:
    """`localspec help models rm` and `localspec models rm --help`."""
    before, behind = (
        CliRunner().invoke(cli, words) for words in (["help", *path], [*path, "--help"])
    )
    assert before.exit_code == behind.exit_code == 0
    assert before.stdout == behind.stdout


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("caht", "localspec chat"),
        ("STATUS", "localspec status"),
        ("modles", "localspec models"),
        ("rm", "localspec models rm"),
        ("show", "localspec models show"),
        ("search", "localspec models search"),
        ("ls", "localspec list"),
        ("download", "localspec pull"),
        ("models remove", "localspec models rm"),
        ("models delete x", "localspec models rm"),
        ("chats ls", "localspec chats list"),
        ("config edit", "localspec config set"),
        ("help modles", "localspec models"),
        ("help models remove", "localspec models rm"),
        ("zzzzzz", "--help"),
    ],
)
def test_a_name_that_is_none_says_what_is_meant(typed: str, meant: str) -> None:
    """By likeness, by the words of other programs, and from the groups below."""
    result = CliRunner().invoke(cli, typed.split())
    assert result.exit_code == 2
    assert result.stdout == ""
    assert meant in " ".join(result.stderr.split())
