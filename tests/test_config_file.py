"""A config.toml that cannot be read is one bounded sentence: file, line, and the fix."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.config import load, parse
from localspec.config_file import MAX_BYTES, line_of
from localspec.errors import ConfigError
from localspec.paths import shipped

TEXT = '# of mine: é\n[server]\nlog_level = "debug"\n'
SHIPPED = shipped("config.toml").read_text(encoding="utf-8")


def written(data: bytes) -> Callable[[Path], object]:
    """How a file with these bytes comes about."""
    return lambda path: path.write_bytes(data)


@pytest.mark.parametrize(
    ("make", "said", "fix"),
    [
        (written(TEXT.encode("utf-16")), ":1: ", "iconv -f UTF-16"),
        (written(TEXT.encode("utf-16-be")), ":1: ", "iconv -f UTF-16"),
        (written(b'[server]\nlog_level = "de\0bug"\n'), "UTF-16 text or no text", "UTF-8"),
        (written(b"\n" + TEXT.encode("latin-1")), ":2: ", "iconv -f WINDOWS-1252"),
        (written(bytes(range(1, 128)) * 40), ": this is not valid TOML", "key = value"),
        (written(b"x = " + b"[" * 100_000), "nested too deeply", ""),
        (written(b"#" * (MAX_BYTES + 1)), "longer than 1 MiB", "mv "),
        (written(b"[server]\n" + b"k = 1\n" * 400_000), "longer than 1 MiB", "mv "),
        (written(b"[server]\nmax_queue = \n"), ":2: ", "quotes"),
        (written(b"[server]\nmax_queue = 1\nmax_queue = 2\n"), ":3: ", "Keep one"),
        (written(b"[server]\n[engine]\n[server]\n"), ":3: ", "one heading"),
        (written(b"[engine.target]\n\n[engine.target]\n"), "[engine.target] stands", "heading"),
        (written(b'{"server": {}}'), ":1: ", "key = value"),
        (written(b'[server]\ntcp = "127'), ":2: ", "quotes"),
        (Path.mkdir, "not a regular file", "ls -ld"),
        (os.mkfifo, "not a regular file", "ls -ld"),
        (lambda path: path.symlink_to(path), "cannot be read", "ls -ld"),
    ],
)
def test_what_is_no_configuration_is_said_with_its_line_and_the_fix(
    tmp_path: Path, make: Callable[[Path], object], said: str, fix: str
) -> None:
    """Encodings, damage, other kinds of files, TOML's rules: each in a sentence that is bounded."""
    path = tmp_path / "config.toml"
    make(path)
    with pytest.raises(ConfigError) as told:
        load(path)
    assert told.value.message.startswith(str(path))
    assert said in told.value.message
    assert fix in told.value.fix
    assert len(str(told.value)) < 1000


@pytest.mark.parametrize(
    ("text", "line", "key"),
    [
        ("[server]\n\nmax_que = 3", 3, "server.max_que"),
        ("server.max_queue = 'x'", 1, "server.max_queue"),
        ("# a\nserver = 3", 2, "server"),
        ("server = {max_queue = 0}", 1, "server.max_queue"),
        ("[sevrer]\na = 1", 1, "sevrer"),
        ("[engine]\n[engine.target]\ngpu_layers = 'all'", 3, "engine.target.gpu_layers"),
        ("[engine]\n[ engine . target ]\n threads=-1", 3, "engine.target.threads"),
        ("[engine]\nremote = [\n  'a:1',\n  'nowhere',\n]", 2, "engine.remote"),
        ("[models]\naliases = {a = 3}", 2, "models.aliases"),
        ("[models.aliases]\na = 'x'\nb = 3", 1, "models.aliases"),
        ("[sampling.logit_bias]\n7 = 1.0\nword = 1.0", 1, "sampling.logit_bias"),
        ("[upstream.rack]\nurl = 'ftp://h'\nmodels = ['a']", 2, "upstream.rack.url"),
        ("\n[upstream.rack]\nmodels = ['a']", 2, "upstream"),
        ("\n[server]\ntcp = 'all'", 3, "server.tcp"),
        ("[server]\nkeep_alive = 'long'", 2, "server.keep_alive"),
        ("[server]\norigins = ['*']", 2, "server.origins"),
    ],
)
def test_a_mistake_has_the_line_of_its_key(text: str, line: int, key: str) -> None:
    """Types, ranges, unknown keys and what belongs together, however the key is written."""
    with pytest.raises(ConfigError) as told:
        parse(text, "/a/config.toml")
    assert told.value.message.startswith(f"/a/config.toml:{line}: ")
    assert (told.value.param or "").startswith(key)
    assert told.value.fix


@given(st.data())
def test_the_line_of_any_key_of_the_shipped_file_is_found(data: st.DataObject) -> None:
    """Wherever it stands: lines of comments between change nothing else."""
    lines = SHIPPED.split("\n")
    for place in data.draw(st.lists(st.integers(0, len(lines)), max_size=5)):
        lines.insert(place, "# a = [b]")
    table, keys = "", {}
    for number, line in enumerate(lines, 1):
        if line.startswith("["):
            table = line.strip("[]")
            keys[table] = number
        elif " = " in line and line[0].islower():
            keys[f"{table}.{line.split(' = ')[0]}"] = number
    assert len(keys) > 50
    name = data.draw(st.sampled_from(sorted(keys)))
    assert line_of("\n".join(lines), name) == keys[name]


@given(data=st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_bytes_are_a_configuration_or_an_error_that_names_the_file(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    """Nothing else is raised, and a line that is named exists."""
    place = tmp_path_factory.getbasetemp() / "any.toml"
    place.write_bytes(data)
    said = f"{place}"
    try:
        load(place)
    except ConfigError as error:
        said = error.message
    assert said.startswith(str(place))
    number = said.removeprefix(f"{place}:").split(":")[0]
    assert not number.isdecimal() or 1 <= int(number) <= data.count(b"\n") + 1
