"""The configuration: frozen values with defaults, read from TOML. `config.toml` shows every key."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import ipaddress
import logging
import os
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import msgspec

from localspec import config_checks, config_file, outdated, paths, ranges, web_origins, wording
from localspec.addresses import MAX_PORT, is_base_url
from localspec.errors import ConfigError
from localspec.ranges import Range
from localspec.types import SamplingParams, VerificationRule

_log = logging.getLogger("localspec.config")

EDITORS = ("vscode-webview://*", "app://obsidian.md", "tauri://localhost")
"""Origins that no web page can have."""


class Server(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The daemon: where it listens and how much it accepts.

    `memory_bytes` limits how much of this computer's memory all models may take together; 0 is all
    that is free. No answer has more than `max_tokens`; 0 means until the context is full. No model
    thinks for more than `max_reasoning_tokens`; -1 is no limit, with 0 none thinks. `origins` are
    web pages, such as editors' webviews, that may use TCP with the token.
    """

    socket: str = ""
    tcp: str = ""
    origins: tuple[str, ...] = EDITORS
    keep_alive: str = "10m"
    memory_bytes: int = 0
    max_queue: int = 64
    max_body_bytes: int = 8 * 1024 * 1024
    drain_seconds: float = 10.0
    max_tokens: int = 0
    max_reasoning_tokens: int = -1
    log_level: Literal["debug", "info", "warning", "error"] = "info"


class Models(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The model that answers when a request names none, and where the files are.

    `aliases` map names that no model here has to models, where "" is the default model. Such a name
    may be a pattern in which * is any text. `templates` map models' names or patterns to files of
    chat templates, for models that have none or a wrong one; "chatml" is built in. `adapters` map
    names or patterns to files of LoRA adapters and their scales.
    """

    default: str = "qwen2.5-coder-1.5b-instruct"
    directory: str = ""
    aliases: dict[str, str] = msgspec.field(default_factory=lambda: {"*": ""})
    templates: dict[str, str] = {}
    adapters: dict[str, dict[str, float]] = {}


class Placement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where and how one model is loaded.

    `gpu_layers` -1 is auto: as many layers as fit on the GPUs. `devices` are llama.cpp's names of
    the devices that may be used; () is all GPUs. `tensor_split` is the share of each; () is by
    memory.
    `split` divides whole layers, the rows of their matrices, or nothing: then all is on the device
    with the index `main_gpu`. `threads` 0 is one per physical core, or a better number found by
    `engine/llama/threads.py`. `kv_type` is the element type of the KV cache.
    """

    gpu_layers: int = -1
    devices: tuple[str, ...] = ()
    split: Literal["layer", "row", "none"] = "layer"
    main_gpu: int = 0
    tensor_split: tuple[float, ...] = ()
    flash_attention: Literal["auto", "on", "off"] = "auto"
    kv_type: Literal["f16", "q8_0", "q4_0"] = "f16"
    threads: int = 0
    mmap: bool = True
    mlock: bool = False


class Engine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The engine: at most `slots` concurrent sessions, none longer than `context` tokens.

    With `context_shift` an answer that fills its context forgets the oldest half and goes on.
    `context` 0 is the trained length, as far as memory allows. `machine` is the table
    (`machine.py`) of a simulated machine; "" is this one. `remote` are addresses of `localspec
    worker-host`s whose devices take layers of the target.
    """

    slots: int = 4
    context: int = 0
    context_shift: bool = False
    prefill_rows: int = 512
    exactness: Literal["auto", "strict", "standard"] = "auto"
    machine: str = ""
    remote: tuple[str, ...] = ()
    target: Placement = Placement()
    draft: Placement = Placement()


class Speculation(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Defaults for requests that say nothing about speculation. Nothing here needs tuning."""

    mode: Literal["auto", "off", "always"] = "auto"
    drafters: tuple[str, ...] = (
        "lookup", "corpus", "grammar", "feature_head", "eagle3", "mtp", "model", "early_exit",
    )  # fmt: skip
    max_draft: int = 31
    verify: VerificationRule = "coupled"


class Draft(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How drafts are made: `corpus` are folders of the user's files.

    `overlap` lets the draft model draft on while the target verifies: "auto" where that pays, "on"
    always, "off" never.
    """

    corpus: tuple[str, ...] = ()
    overlap: Literal["auto", "on", "off"] = "auto"


class Chat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`localspec chat`: whether conversations are kept, colours, and whether speeds are shown."""

    keep: bool = True
    theme: Literal["auto", "dark", "light", "none"] = "auto"
    verbose: bool = False


class Cache(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The prefix store: prompts that were read are kept, so that none is read twice.

    `memory_bytes` limits the copies of each loaded model, `disk_bytes` all files together. With -1
    the limit depends on what is free, with 0 nothing is kept there.
    """

    memory_bytes: int = -1
    disk_bytes: int = -1


class Upstream(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Another server, which answers for `models` with OpenAI's API below `url`.

    `token_file` holds its bearer token in one line, "" is none; a request ends after
    `idle_seconds` of silence.
    """

    url: str
    models: tuple[str, ...]
    token_file: str = ""
    idle_seconds: float = 300.0


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All settings. Values are checked by `parse`; nothing here touches a file."""

    server: Server = Server()
    models: Models = Models()
    engine: Engine = Engine()
    speculation: Speculation = Speculation()
    draft: Draft = Draft()
    sampling: SamplingParams = SamplingParams()
    chat: Chat = Chat()
    cache: Cache = Cache()
    upstream: dict[str, Upstream] = {}


_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "ms": 0.001}


def seconds(text: str) -> float | None:
    """Seconds of a span in Ollama's form: "10m", "90", "1h30m"; None (for ever) if negative.

    Raises ConfigError.
    """
    if re.fullmatch(r"-[0-9]+(ms|s|m|h)?", text):
        return None
    number = r"[0-9]{1,9}(?:\.[0-9]{1,9})?"
    if re.fullmatch(number, text):
        return float(text)
    parts = re.findall(f"({number})(ms|s|m|h)", text)
    if not parts or "".join(count + unit for count, unit in parts) != text:
        raise ConfigError(
            f'server.keep_alive = "{text}" is not a span of time.',
            fix='Write "10m", "90s", "1h30m", "0" (unload at once) or "-1" (never unload).',
            param="server.keep_alive",
        )
    return sum(float(count) * _UNITS[unit] for count, unit in parts)


def tcp_address(text: str) -> tuple[str, int]:
    """("127.0.0.1", 8080) from "127.0.0.1:8080". Raises ConfigError unless it is loopback."""
    host, _, port = text.rpartition(":")
    host = host.strip("[]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
        number = int(port) if port.isascii() and port.isdecimal() else -1
    except ValueError:
        loopback, number = False, 0
    if not loopback or not 0 <= number <= MAX_PORT:
        raise ConfigError(
            f'server.tcp = "{text}" is not a loopback address with a port.',
            fix='Write "127.0.0.1:8080"; reach it from elsewhere through ssh -L.',
            param="server.tcp",
        )
    return host, number


def load(path: Path, *, keep: bool = False) -> Config:
    """The configuration in `path`; the defaults when there is no such file.

    Raises ConfigError. With `keep` its text is saved as the last good one, for `in_force`.
    """
    text = config_file.read(path)
    config = Config() if text is None else parse(text, str(path))
    if keep:
        with contextlib.suppress(OSError):  # with a full disk only the copy is lost
            paths.write_atomically(_kept(path), (text or "").encode())
    return config


def in_force(path: Path) -> tuple[Config, ConfigError | None]:
    """The configuration, or its last good version (or defaults) and the error of a broken one."""
    try:
        return load(path), None
    except ConfigError as error:
        try:
            return load(_kept(path)), error
        except ConfigError:
            return Config(), error


def _kept(path: Path) -> Path:
    """The path of the saved last good text of that file."""
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
    return paths.state_dir() / "config" / f"{name}.toml"


def parse(text: str, origin: str = "config.toml") -> Config:
    """A checked Config from TOML text. Raises ConfigError with the line, the key and the fix."""
    table = config_file.table(text, origin)
    outdated.renew(table, origin)
    try:
        return _checked(table)
    except ConfigError as error:
        line = config_file.line_of(text, error.param or "")
        where = f"{origin}:{line}" if line else origin
        raise ConfigError(f"{where}: {error.message}", fix=error.fix, param=error.param) from error


def _checked(table: dict[str, Any]) -> Config:
    _refuse_unknown(table, Config, "")
    try:
        config = msgspec.convert(table, Config, str_keys=True)
    except msgspec.ValidationError as error:
        path, sentence = wording.fault(error, Config)
        fix = "`man localspec-config` has every key."
        raise ConfigError(f"{path}: {sentence}", fix=fix, param=path) from error
    _check(config)
    return config


def _refuse_unknown(table: dict[str, Any], kind: Any, prefix: str) -> None:
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    for key, value in table.items():
        name = prefix + key
        if key not in fields:
            near = difflib.get_close_matches(key, fields, n=1)
            fix = f"Did you mean {prefix}{near[0]}?" if near else f"Known: {', '.join(fields)}."
            raise ConfigError(f"unknown key {name}.", fix=fix, param=name)
        inner = fields[key]
        if not isinstance(value, dict):
            continue
        if _is_table(inner):
            _refuse_unknown(value, inner, f"{name}.")
        elif get_origin(inner) is dict and _is_table(get_args(inner)[1]):
            for label, part in value.items():
                if isinstance(part, dict):
                    _refuse_unknown(part, get_args(inner)[1], f"{name}.{label}.")


def _is_table(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


_RANGES = {
    "server.memory_bytes": Range(0, 1 << 50),
    "server.max_queue": Range(1, 100_000),
    "server.max_body_bytes": Range(1024, 1 << 30),
    "server.drain_seconds": Range(0, 3600),
    "server.max_tokens": ranges.MAX_TOKENS,
    "server.max_reasoning_tokens": Range(-1, ranges.MAX_TOKENS.high),
    "engine.slots": Range(1, 64),
    "engine.context": Range(0, 1 << 22),
    "engine.prefill_rows": Range(16, 8192),
    "engine.target.gpu_layers": Range(-1, 10_000),
    "engine.target.main_gpu": Range(0, 63),
    "engine.target.threads": Range(0, 1024),
    "engine.draft.gpu_layers": Range(-1, 10_000),
    "engine.draft.main_gpu": Range(0, 63),
    "engine.draft.threads": Range(0, 1024),
    "speculation.max_draft": ranges.MAX_DRAFT,
    "cache.memory_bytes": Range(-1, 1 << 50),
    "cache.disk_bytes": Range(-1, 1 << 50),
    **{f"sampling.{name}": range_ for name, range_ in ranges.SAMPLING.items()},
}


_LEAST_CONTEXT = 64
_MAX_IDLE_SECONDS = 86_400


def _check(config: Config) -> None:
    for name, range_ in _RANGES.items():
        value: Any = config
        for part in name.split("."):
            value = getattr(value, part)
        if value not in range_:
            raise config_checks.out_of_range(name, value, f"Choose a value from {range_}.")
    if 0 < config.engine.context < _LEAST_CONTEXT:
        fix = f"Choose at least {_LEAST_CONTEXT}, or 0 for what fits."
        raise config_checks.out_of_range("engine.context", config.engine.context, fix)
    for model in ("target", "draft"):
        placement: Placement = getattr(config.engine, model)
        config_checks.split(placement.tensor_split, f"engine.{model}")
        if placement.flash_attention == "off" and placement.kv_type != "f16":
            raise ConfigError(
                f"engine.{model}.kv_type = {placement.kv_type} needs flash attention.",
                fix='Leave flash_attention at "auto", or kv_type at "f16".',
                param=f"engine.{model}.kv_type",
            )
    ranges.check_chain(config.sampling)
    seconds(config.server.keep_alive)
    if config.server.tcp:
        tcp_address(config.server.tcp)
    for pattern in config.server.origins:
        if why := web_origins.wrong(pattern):
            raise ConfigError(
                f'server.origins names "{pattern}", which {why}.',
                fix='Write "scheme://name" or "scheme://name:port"; a * may stand for text of the '
                "name, but not with http and https.",
                param="server.origins",
            )
    ranges.check_scales(config.models.adapters)
    config_checks.place("server.socket", config.server.socket)
    config_checks.corpus(config.draft.corpus)
    config_checks.remote(config.engine.remote)
    _check_upstream(config.upstream)


def _check_upstream(upstreams: dict[str, Upstream]) -> None:
    owners: dict[str, str] = {}
    for name, upstream in upstreams.items():
        key = f"upstream.{name}"
        if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
            fix = "Use letters, digits, - and _."
            raise ConfigError(f"{key} is no name for an upstream.", fix=fix, param=key)
        if not is_base_url(upstream.url):
            raise ConfigError(
                f'{key}.url = "{upstream.url}" is no address of an API.',
                fix='Write "http://host:port/v1" or "https://...": no user, no query.',
                param=f"{key}.url",
            )
        if not 0 < upstream.idle_seconds <= _MAX_IDLE_SECONDS:
            fix = f"Choose a value from 1 to {_MAX_IDLE_SECONDS}."
            raise config_checks.out_of_range(f"{key}.idle_seconds", upstream.idle_seconds, fix)
        for model in upstream.models:
            if not model or owners.setdefault(model, name) != name:
                raise ConfigError(
                    f'{key}.models names "{model}", which upstream.'
                    f"{owners.get(model, name)} names as well, or nothing.",
                    fix="Name each model once.",
                    param=f"{key}.models",
                )
