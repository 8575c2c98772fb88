"""Laws of the configuration: the shipped file is the defaults, and no mistake gets through."""

from __future__ import annotations

import contextlib
import grp
import ipaddress
import os
import pwd
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.addresses import host_and_port
from localspec.config import Config, in_force, load, parse, seconds, tcp_address
from localspec.errors import ConfigError
from localspec.paths import shipped


def keys(kind: Any, prefix: str = "") -> list[str]:
    """Dotted names of all keys below a struct."""
    found = []
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found += keys(field.type, f"{prefix}{field.name}.")
        else:
            found.append(prefix + field.name)
    return found


def refusal(text: str) -> ConfigError:
    """The error that `text` meets; fails when it meets none."""
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value


def test_the_shipped_file_is_the_defaults() -> None:
    """`config.toml` documents what happens without it: it parses to Config()."""
    assert load(shipped("config.toml")) == Config()


def test_the_shipped_file_shows_every_key_with_a_comment() -> None:
    """Each key is written once, and in the target's table or above it a comment explains it."""
    table, shown, explained = "", [], set()
    comment = False
    for line in shipped("config.toml").read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            table = line.strip("[]")
            if table in keys(Config):  # a table whose entries the user names
                shown.append(table)
                if comment:
                    explained.add(table)
        elif " = " in line and not line.startswith("#"):
            name = f"{table}.{line.split(' = ')[0]}"
            shown.append(name)
            if comment:
                explained.add(name)
        comment = line.startswith("#")
    assert sorted(shown) == sorted(keys(Config))
    same_as_target = {name for name in shown if name.startswith("engine.draft.")}
    assert set(shown) - same_as_target <= explained


def test_no_file_means_the_defaults(tmp_path: Path) -> None:
    """A user who configures nothing gets Config()."""
    assert load(tmp_path / "absent.toml") == Config()


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    """Some editors write one; the file means the same."""
    path = tmp_path / "config.toml"
    path.write_text("[engine]\nslots = 2\n", encoding="utf-8-sig")
    assert load(path).engine.slots == 2


def test_an_unreadable_file_is_named(tmp_path: Path) -> None:
    """A directory or bytes that are not UTF-8 give a ConfigError with the path."""
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    for path in (tmp_path, binary):
        with pytest.raises(ConfigError, match=path.name) as told:
            load(path)
        assert told.value.message.count(str(path)) == 1
        assert "Errno" not in told.value.message
    assert load(Path(os.devnull)) == Config()


@pytest.mark.parametrize(
    ("text", "key", "nearest"),
    [
        ("[server]\nkeepalive = '5m'", "server.keepalive", "server.keep_alive"),
        ("[enigne]\nslots = 2", "enigne", "engine"),
        ("[engine.target]\ngpu_layer = 3", "engine.target.gpu_layer", "engine.target.gpu_layers"),
        ("[sampling]\ntemprature = 1.0", "sampling.temprature", "sampling.temperature"),
    ],
)
def test_an_unknown_key_is_refused_with_the_nearest_name(text: str, key: str, nearest: str) -> None:
    """A misspelling must never be ignored silently."""
    error = refusal(text)
    assert error.param == key
    assert key in error.message
    assert nearest in error.fix


def test_an_unknown_key_far_from_all_lists_the_known_ones() -> None:
    """Without a near name the fix shows every name of that table."""
    assert "keep_alive" in refusal("[server]\nzzzzzz = 1").fix


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[engine]\nslots = 'four'", "slots"),
        ("[engine]\nslots = true", "slots"),
        ("[engine]\nslots = 2.5", "slots"),
        ("[engine]\nexactness = 'roughly'", "exactness"),
        ("[engine.target]\nmmap = 1", "mmap"),
        ("[speculation]\ndrafters = 'lookup'", "drafters"),
        ("[sampling.logit_bias]\nword = 1.0", "logit_bias"),
        ("server = 3", "server"),
    ],
)
def test_a_value_of_the_wrong_type_is_named(text: str, named: str) -> None:
    """TOML's own types are meant literally: no truth for 1, no number for its name."""
    error = refusal(text)
    assert named in error.message
    assert error.fix


@pytest.mark.parametrize("place", ["here.sock", "./here.sock", "~", "~other/sock"])
def test_a_socket_is_the_same_wherever_a_command_is_typed(place: str) -> None:
    """A path below the current directory is another one for each command."""
    error = refusal(f'[server]\nsocket = "{place}"')
    assert error.param == "server.socket"
    assert error.fix


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("server.memory_bytes", "-1"),
        ("server.max_queue", "-1"),
        ("server.drain_seconds", "inf"),
        ("engine.slots", "65"),
        ("engine.context", "9223372036854775807"),
        ("engine.target.gpu_layers", "-2"),
        ("engine.draft.main_gpu", "-1"),
        ("engine.draft.tensor_split", "[1.0, nan]"),
        ("engine.target.tensor_split", "[-1.0]"),
        ("engine.target.tensor_split", str([1.0] * 17)),
        ("speculation.max_draft", "65"),
        ("sampling.temperature", "nan"),
        ("sampling.temperature", "-0.1"),
        ("sampling.top_p", "1.5"),
        ("sampling.repetition_penalty", "0.0"),
        ("sampling.seed", "-2"),
        ("sampling.seed", str(1 << 64)),
        ("sampling.logit_bias", "{-1 = 1.0}"),
        ("sampling.logit_bias", "{7 = nan}"),
    ],
)
def test_a_number_out_of_range_is_named_with_its_range(name: str, value: str) -> None:
    """Neither NaN nor a number that native code would trust reaches the engine."""
    table, _, key = name.rpartition(".")
    error = refusal(f"[{table}]\n{key} = {value}")
    assert error.param == name
    assert "out of range" in error.message
    assert error.fix


def test_a_key_that_is_gone_is_told_and_breaks_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In one line, however often the file is read."""
    file = tmp_path / "config.toml"
    file.write_text("[server]\nmax_loaded = 2\nmax_queue = 7\n")
    file.chmod(0o600)
    for _ in range(2):
        assert load(file).server.max_queue == 7
    (said,) = caplog.messages
    assert "server.max_loaded has no effect any more" in said
    assert "server.memory_bytes" in said


@pytest.mark.parametrize("text", ["[engine", "a = ", "\x00", "a = " + "[" * 100_000])
def test_what_is_not_toml_is_refused(text: str) -> None:
    """The parser's word is passed on, and depth does not overflow the stack."""
    assert "not valid TOML" in refusal(text).message


@pytest.mark.parametrize("model", ["target", "draft"])
def test_a_small_kv_cache_needs_flash_attention(model: str) -> None:
    """llama.cpp would refuse the context; the sentence comes before anything is loaded."""
    text = f"[engine.{model}]\nkv_type = 'q8_0'\nflash_attention = "
    assert refusal(text + "'off'").param == f"engine.{model}.kv_type"
    assert getattr(parse(text + "'auto'").engine, model).kv_type == "q8_0"


def test_a_bias_is_keyed_by_token_id() -> None:
    """TOML keys are strings; token ids are numbers."""
    assert parse("[sampling]\nlogit_bias = {42 = -100.0}").sampling.logit_bias == {42: -100.0}


@given(st.dictionaries(st.sampled_from(keys(Config)), st.integers() | st.floats() | st.text()))
def test_no_value_raises_anything_but_a_config_error(values: dict[str, int | float | str]) -> None:
    """`parse` gives a Config or a ConfigError, nothing else, for any value at a key."""
    lines = []
    for name, value in values.items():
        text = msgspec.json.encode(value).decode() if isinstance(value, str) else str(value)
        lines.append(f"{name} = {text}")
    with contextlib.suppress(ConfigError):
        assert isinstance(parse("\n".join(lines)), Config)


@pytest.mark.parametrize(
    "address", ["", "host", ":50052", "host:0", "host:65536", "host:port", "[::1]:50052", "a b:1",
                "http://host:1", "host:1:2", "-host:1", "host:1\n"],
)  # fmt: skip
def test_a_remote_is_a_host_and_a_port(address: str) -> None:
    """Llama.cpp would abort over anything else."""
    text = msgspec.json.encode([address]).decode()
    assert refusal(f"[engine]\nremote = {text}").param == "engine.remote"


@given(st.ip_addresses(v=4) | st.from_regex(r"[a-z][a-z0-9.-]{0,20}[a-z0-9]", fullmatch=True),
       st.integers(1, 65_535))  # fmt: skip
def test_every_host_and_port_is_taken_apart(host: object, port: int) -> None:
    """Names and IPv4 addresses."""
    assert host_and_port(f"{host}:{port}") == (str(host), port)
    assert parse(f"[engine]\nremote = ['{host}:{port}']").engine.remote == (f"{host}:{port}",)


def test_each_remote_is_named_once() -> None:
    """Its devices cannot be lent twice."""
    assert "twice" in refusal("[engine]\nremote = ['a:1', 'b:1', 'a:1']").message


RACK = "[upstream.rack]\nurl = 'http://h:8000/v1'\nmodels = ['big']\n"


def test_an_upstream_has_an_address_and_models() -> None:
    """The rest has defaults."""
    rack = parse(RACK).upstream["rack"]
    assert (rack.url, rack.models) == ("http://h:8000/v1", ("big",))
    assert (rack.token_file, rack.idle_seconds) == ("", 300.0)


@pytest.mark.parametrize(
    ("text", "param"),
    [
        (RACK + "modles = []", "upstream.rack.modles"),
        (RACK + "idle_seconds = 0.0", "upstream.rack.idle_seconds"),
        (RACK + "idle_seconds = nan", "upstream.rack.idle_seconds"),
        (RACK + "[upstream.two]\nurl = 'http://h/v1'\nmodels = ['big']", "upstream.two.models"),
        (RACK.replace("big", ""), "upstream.rack.models"),
        (RACK.replace("rack", "'a b'"), "upstream.a b"),
    ],
)
def test_a_mistake_in_an_upstream_is_named(text: str, param: str) -> None:
    """A model may be on one upstream only, and a misspelt key is no key."""
    assert refusal(text).param == param


@pytest.mark.parametrize(
    "url", ["", "h:8000", "ftp://h/v1", "http://", "http://u:p@h/v1", "http://h/v1?key=1",
            "http://h/v1#x", "http://h:port/v1", "http://h:99999/v1", "http://h/a b", "file:///etc"],
)  # fmt: skip
def test_an_upstreams_address_is_http_and_nothing_else(url: str) -> None:
    """No secrets in it, which logs and status would show."""
    assert refusal(RACK.replace("http://h:8000/v1", url)).param == "upstream.rack.url"


UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}


@given(
    st.lists(
        st.tuples(st.integers(0, 9999), st.sampled_from(sorted(UNIT_SECONDS))),
        min_size=1,
        max_size=4,
    )
)
def test_a_span_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    """An hour and a half is "1h30m"; a bare number is seconds."""
    text = "".join(f"{number}{unit}" for number, unit in parts)
    expected = sum(number * UNIT_SECONDS[unit] for number, unit in parts)
    assert seconds(text) == pytest.approx(expected)
    assert seconds(str(parts[0][0])) == parts[0][0]


@pytest.mark.parametrize("text", ["-1", "-5m"])
def test_a_negative_span_is_for_ever(text: str) -> None:
    """As clients of Ollama write it."""
    assert seconds(text) is None


@pytest.mark.parametrize(
    "text", ["", "m", "10 m", "5d", "1.m", "-", "-x", "nan", "inf", "1e3", "٣s", "9" * 400 + "h"]
)
def test_what_is_no_span_is_refused(text: str) -> None:
    """The error says how to write one, also when it comes through a file."""
    with pytest.raises(ConfigError, match="not a span") as caught:
        seconds(text)
    assert caught.value.param == "server.keep_alive"
    assert "not a span" in refusal(f"[server]\nkeep_alive = '{text}'").message


@given(st.ip_addresses(), st.integers(-1, 70_000))
def test_tcp_is_loopback_with_a_port_or_refused(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address, port: int
) -> None:
    """No configuration can open the daemon to a network."""
    text = f"[{address}]:{port}" if address.version == 6 else f"{address}:{port}"
    try:
        host, number = tcp_address(text)
    except ConfigError:
        assert not (address.is_loopback and 0 <= port <= 65_535)
    else:
        assert ipaddress.ip_address(host).is_loopback
        assert number == port


@given(st.sampled_from(["127.0.0.1", "127.9.8.7", "[::1]"]), st.integers(0, 65_535))
def test_every_loopback_address_is_taken(host: str, port: int) -> None:
    """All of 127.0.0.0/8 and ::1, in brackets as in an URL."""
    assert parse(f"[server]\ntcp = '{host}:{port}'").server.tcp
    assert tcp_address(f"{host}:{port}") == (host.strip("[]"), port)


@pytest.mark.parametrize("text", ["8080", ":8080", "localhost:80", "127.0.0.1", "127.0.0.1: 80"])
def test_an_address_must_be_written_out(text: str) -> None:
    """A name could resolve to anything, and a port alone would mean every interface elsewhere."""
    with pytest.raises(ConfigError, match="loopback"):
        tcp_address(text)


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """It says which servers prompts go to; the group of this user alone is nobody else."""
    file = tmp_path / "config.toml"
    file.write_text("[server]\nmax_queue = 3\n")
    for mode in (0o600, 0o644, 0o444):
        file.chmod(mode)
        assert load(file).server.max_queue == 3
    file.chmod(0o666)
    with pytest.raises(ConfigError, match="written by others") as caught:
        load(file)
    assert caught.value.fix == f"chmod go-w {file}"
    assert load(Path("/dev/null")) == Config()


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives files away")
def test_a_file_that_belongs_to_others_is_refused(tmp_path: Path) -> None:
    """To a group that others are in and that may write it, or to another user."""
    file = tmp_path / "config.toml"
    file.write_text("[server]\nmax_queue = 3\n")
    file.chmod(0o664)
    os.chown(file, -1, _group_of_others())
    with pytest.raises(ConfigError, match="written by others"):
        load(file)
    os.chown(file, 12345, -1)
    with pytest.raises(ConfigError, match="another user"):
        load(file)


def _group_of_others() -> int:
    """A group that is not named after this user."""
    user = pwd.getpwuid(os.getuid()).pw_name
    return next(group.gr_gid for group in grp.getgrall() if group.gr_name != user)


def test_the_last_good_configuration_is_in_force_while_the_file_has_a_mistake(
    tmp_path: Path,
) -> None:
    """Commands use the settings a daemon last took; where none ever ran, the defaults."""
    file = tmp_path / "config.toml"
    file.write_text("[server]\nmax_queue = 3\n")
    load(file, keep=True)
    file.write_text("contxt = 256\n")
    config, error = in_force(file)
    assert config.server.max_queue == 3
    assert error is not None
    assert "contxt" in error.message
    other = tmp_path / "other.toml"
    other.write_text("contxt = 256\n")
    assert in_force(other)[0] == Config()


def test_a_drafter_s_earlier_name_still_works() -> None:
    """A configuration that was written before 0.2.0 is not refused for it."""
    config = parse('[speculation]\ndrafters = ["lookup", "hydra"]\n', "here")
    assert config.speculation.drafters == ("lookup", "feature_head")
