"""Checks of `localspec doctor` on the disk and of the running daemon; each yields findings.

Nothing here changes anything, and nothing imports native code. A check never raises for a fault
that it looks for.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from localspec import built, paths
from localspec import config as configuration
from localspec.catalog import entries, header, pairing, placement, verified
from localspec.catalog.devices import Device
from localspec.catalog.header import Header
from localspec.catalog.memory import outline, show_bytes
from localspec.catalog.plan import PlanRequest
from localspec.catalog.registry import Registry, Resolved
from localspec.cli.plan import with_head
from localspec.client import Client, Json, other_version
from localspec.config import Config
from localspec.errors import BadPair, LocalSpecError, NotRunning, UnknownModel

_PRIVATE_SOCKET = 0o600
_OTHERS = 0o077
_LEAST_FREE_BYTES = 10**9


class Finding(msgspec.Struct, frozen=True):
    """One line of the report: the subject, its state, and the fix if it is wrong."""

    what: str
    verdict: Literal["ok", "wrong"]
    said: str
    fix: str = ""


def fine(what: str, said: str) -> Finding:
    """A finding without a fault."""
    return Finding(what, "ok", said)


def wrong(what: str, said: str, fix: str) -> Finding:
    """A finding with a fault; `fix` is the command or change that helps."""
    return Finding(what, "wrong", said, fix)


def failed(what: str, error: LocalSpecError | OSError, fix: str) -> Finding:
    """A finding made of an error; `fix` applies where the error has none."""
    if isinstance(error, OSError):
        return wrong(what, f"{error.filename or what}: {error.strerror}.", fix)
    return wrong(what, error.message, error.fix or fix)


def settings() -> tuple[Finding, Config]:
    """The configuration, or the defaults with the reason why it is not in force."""
    file = paths.config_file()
    try:
        chosen = configuration.load(file)
        said = str(file) if file.exists() else f"defaults; there is no {file}"
    except (LocalSpecError, OSError) as error:
        return failed("settings", error, f"Correct {file}."), Config()
    return fine("settings", said), chosen


def models_directory(chosen: Config) -> Path:
    """The directory of models in this configuration."""
    directory = chosen.models.directory
    return paths.expanded(directory) if directory else paths.models_dir()


class DirectoryCheck(NamedTuple):
    """A directory, its required access (os.access), and the mode bits that it must not have."""

    what: str
    path: Path
    access: int
    forbidden: int


def places(models: Path, socket: Path) -> list[DirectoryCheck]:
    """Every directory that LocalSpec uses.

    Another user who may write to the directory of the socket or of the state could replace what is
    there, so no group may. The other directories may be ones that the user shares with a group.
    """
    use = os.R_OK | os.X_OK
    write = use | os.W_OK
    return [
        DirectoryCheck("models", models, use, stat.S_IWOTH),
        DirectoryCheck("configuration", paths.config_file().parent, use, stat.S_IWOTH),
        DirectoryCheck("cache", paths.cache_dir(), write, stat.S_IWOTH),
        DirectoryCheck("state", paths.state_dir(), write, stat.S_IWGRP | stat.S_IWOTH),
        DirectoryCheck("socket", socket.parent, write, stat.S_IWGRP | stat.S_IWOTH),
    ]


_ELSEWHERE = "Set HOME, or the directory's XDG_*_HOME, to a place that can be written."


def permissions(directories: list[DirectoryCheck], token: Path) -> Iterator[Finding]:
    """Findings on whether each directory can be used, by this user alone, and the token is private.

    A directory that does not exist yet is no fault if it can be made when it is needed.
    """
    problems = [problem for place in directories if (problem := _directory(place))]
    with contextlib.suppress(OSError):
        found = token.lstat()
        if found.st_uid != os.getuid() or found.st_mode & _OTHERS:
            problems.append(
                wrong("permissions", f"{token} may be read by others.", f"chmod 600 {token}")
            )
    yield from problems
    if not problems:
        names = ", ".join(place.what for place in directories)
        yield fine("permissions", f"{names}: yours alone to use")


def _directory(place: DirectoryCheck) -> Finding | None:
    what, path = place.what, place.path
    try:
        found = path.stat()
    except FileNotFoundError:
        return _unmade(place)
    except OSError as error:
        reason, fix = f"{what}: {path} cannot be looked at: {error.strerror}.", f"ls -ld {path}"
        return wrong("permissions", reason, fix)
    mode = f"(mode {stat.S_IMODE(found.st_mode):04o}, owner {found.st_uid})"
    if not stat.S_ISDIR(found.st_mode):
        return wrong("permissions", f"{what}: {path} is no directory.", f"Move {path} away.")
    if not os.access(path, place.access):
        mine = found.st_uid == os.getuid()
        why, fix = "closed to you", f"chmod u+rwx {path}" if mine else f"sudo chown $USER {path}"
        if _is_read_only(path):
            why, fix = "on a read-only disk", _ELSEWHERE
        return wrong("permissions", f"{what}: {path} is {why} {mode}.", fix)
    if found.st_mode & place.forbidden:
        fix = f"chmod go-w {path}"
        return wrong("permissions", f"{what}: others may write to {path} {mode}.", fix)
    return None


def _unmade(place: DirectoryCheck) -> Finding | None:
    """A finding if a directory that will be written to does not exist and cannot be made."""
    if not place.access & os.W_OK:
        return None
    above = next((one for one in place.path.parents if one.exists()), Path("/"))
    if os.access(above, os.W_OK | os.X_OK):
        return None
    why = "on a read-only disk" if _is_read_only(above) else "closed to you"
    said = f"{place.what}: {place.path} cannot be made, because {above} is {why}."
    return wrong("permissions", said, _ELSEWHERE)


def _is_read_only(path: Path) -> bool:
    return bool(os.statvfs(path).f_flag & os.ST_RDONLY)


def daemon() -> Iterator[Finding]:
    """The socket file, and the daemon behind it if one answers."""
    try:
        client = Client.from_environment()
    except (LocalSpecError, OSError) as error:
        yield failed("daemon", error, "localspec config check")
        return
    try:
        report = client.status()
    except NotRunning:
        yield _silent(client.socket_path)
        return
    except LocalSpecError as error:
        yield failed("daemon", error, "localspec logs")
        return
    if client.socket_path:
        mode = stat.S_IMODE(client.socket_path.lstat().st_mode)
        if mode != _PRIVATE_SOCKET:
            said = f"{client} has mode {mode:04o} instead of 0600, so others may reach it."
            yield wrong("socket", said, f"chmod 600 {client}")
    yield from _running(report)


def _silent(socket: Path | None) -> Finding:
    """Why no daemon answers: never started, or a socket that was left behind."""
    try:
        kind = socket.lstat().st_mode if socket else None
    except OSError:
        kind = None
    if kind is None:
        return fine("daemon", "not running; `localspec chat` starts it")
    if not stat.S_ISSOCK(kind):
        return wrong("socket", f"{socket} is in the way and is no socket.", f"rm {socket}")
    said = f"{socket} was left behind by a daemon that died; nothing answers on it."
    return wrong("socket", said, "localspec start  # takes its place")


def _running(report: Json) -> Iterator[Finding]:
    if said := other_version(report["version"]):
        yield wrong("version", said, "localspec restart")
    if report.get("updated"):
        said = f"LocalSpec was updated since pid {report['pid']} started, which runs the old code."
        yield wrong("daemon", said, "localspec restart")
    if report.get("config_error"):
        said = f"It runs with an older configuration: {report['config_error']}"
        yield wrong("daemon", said, "localspec config check")
    known = report.get("models", [])
    troubles = [trouble for model in known for trouble in _troubles(model)]
    yield from troubles
    if not troubles:
        names = [f"{model['name']} {model['state']}" for model in known]
        loaded = ", ".join(names) or "no model loaded"
        yield fine("daemon", f"pid {report['pid']}, version {report['version']}: {loaded}")
    yield from filter(None, map(_history, known))


def _troubles(model: Json) -> Iterator[Finding]:
    """Present faults of a model: its requests are refused, stand still, or are slow.

    Past faults are in `_history`. A model that is loading again is not wrong yet.
    """
    name = model["name"]
    if model["state"] == "failed":
        died = f"its worker keeps dying, the last one of {model.get('last_crash')}"
        yield wrong("daemon", f"{name}: {model.get('error') or died}", "localspec logs")
    if model.get("stalled"):
        yield wrong("daemon", f"{name}: its worker stands still.", "localspec logs")
    if model.get("safe_kernels"):
        said = f"{name} runs with slow kernels, because the fast ones crashed or gave no numbers."
        yield wrong("daemon", said, f"{built.COMMAND}  # proves the build, and mends it if it can")


def _history(model: Json) -> Finding | None:
    """Past faults of a model, in one line; None if there are none, or they persist."""
    if model["state"] == "failed" or not (crash := model.get("last_crash")):
        return None
    now = {"ready": "another one has taken its place", "loading": "it is loading again"}
    then = now.get(model["state"], "the next request loads it again")
    return fine("history", f"{model['name']}: a worker died of {crash}; {then}")


def models(directory: Path, default: str) -> tuple[list[Finding], list[Header]]:
    """The default pair and every other file; the headers of the pair as far as they can be read."""
    registry = Registry(directory)
    try:
        pair = registry.resolve(default)
        findings, found = _pair(pair)
    except UnknownModel as error:
        pair, found = None, []
        said = f'models.default = "{default}": {error.message}'
        findings = [wrong("model", said, error.fix or "localspec models pull")]
    except LocalSpecError as error:
        pair, found = None, []
        findings = [failed("model", error, "localspec models pull")]
    except OSError as error:
        return [failed("models", error, f"ls -ld {directory}")], []
    mine = {pair.target_path, pair.draft_path} if pair else set()
    return [*findings, *_others(registry, mine)], found


def _pair(pair: Resolved) -> tuple[list[Finding], list[Header]]:
    again = f"localspec models rm {pair.name} && localspec models pull {pair.name}"
    try:
        target = header.read(pair.target_path)
    except LocalSpecError as error:
        return [wrong("model", error.message, again)], []
    findings = [_checksum(pair, again)]
    if pair.draft_path is None:
        if pair.draft_name is None:
            return [*findings, fine("draft", "none; prompt lookup drafts alone")], [target]
        pull = f"localspec models pull {pair.name}"
        return [*findings, wrong("draft", f"{pair.draft_name} is not here.", pull)], [target]
    again = f"localspec models rm {pair.draft_name} && localspec models pull {pair.name}"
    try:
        draft = pairing.check_draft(target, pair.draft_path)
    except BadPair as error:
        another = f"localspec models check {pair.name} DRAFT  # a smaller one, to import it with"
        return [*findings, wrong("draft", error.message, another)], [target]
    except LocalSpecError as error:
        return [*findings, wrong("draft", error.message, again)], [target]
    verdict = pairing.check(target, draft)
    said = f"{pair.draft_name} shares {verdict.shared_tokens} tokens with the target"
    if verdict.by_text:
        said = f"{pair.draft_name} has another tokenizer and writes in the target's tokens"
    return [*findings, fine("draft", said)], [target, draft]


def _checksum(pair: Resolved, fix: str) -> Finding:
    """A finding on whether the target's file is still the catalog's."""
    entry = entries.load().get(pair.name)
    if entry is None or entry.quantize or entry.file != pair.target_path.name:
        return fine("model", f"{pair.name}: its header is sound")
    if not verified.holds(pair.target_path, entry.sha256):
        try:
            with pair.target_path.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            said = f"{pair.target_path} cannot be read: {error.strerror}."
            return wrong("model", said, f"ls -l {pair.target_path}")
        if digest != entry.sha256:
            return wrong("model", f"{pair.target_path} is not what the catalog has.", fix)
    return fine("model", f"{pair.name}: its header is sound, its bytes are the catalog's")


def _others(registry: Registry, mine: set[Path | None]) -> Iterator[Finding]:
    """Faults of the files besides the default pair, and how many of these files are sound."""
    sound = 0
    try:
        known = registry.models()
    except LocalSpecError as error:
        yield failed("models", error, "localspec models list")
        return
    for model in known:
        if model.path is None or model.path in mine:
            continue
        try:
            header.read(model.path)
            sound += 1
        except LocalSpecError as error:
            yield wrong("models", error.message, f"localspec models rm {model.name}")
    for file in registry.skipped():
        yield wrong(
            "models", f"{file.file}: {file.reason}.", f"rm {registry.directory / file.file}"
        )
    if sound:
        yield fine("models", f"{sound} more, their headers are sound")


def memory(chosen: Config, pair: list[Header], there: list[Device]) -> Iterator[Finding]:
    """The memory a load of the pair would have if nothing else used these devices."""
    if not pair or chosen.engine.remote:  # a remote's memory is known only once it is reached
        return
    empty = [msgspec.structs.replace(device, free_bytes=device.total_bytes) for device in there]
    target, head = with_head(pair[0], chosen)
    request = PlanRequest.of(chosen, [target, *(outline(found) for found in pair[1:])], head=head)
    try:
        best = placement.plans(request, empty)[0]
    except LocalSpecError as error:
        yield failed("memory", error, "localspec config edit")
        return
    asked = min(chosen.engine.context, request.context)
    if not best.fits or (request.draft and best.draft is None):
        what = "draft" if best.fits else "model"
        said = f"Not all of the pair fits: no memory is left for the {what}."
        yield wrong("memory", said, "localspec models plan  # and choose a smaller model")
    elif best.slots < chosen.engine.slots or best.context < asked:
        said = f"There is less than was asked for: {best.sentence()}."
        yield wrong("memory", said, "Lower engine.context or engine.slots in config.toml.")
    else:
        yield fine("memory", best.sentence())


def disk(directories: list[DirectoryCheck]) -> Iterator[Finding]:
    """Free space in each directory; one line for each file system."""
    seen: set[int] = set()
    for what, path, *_ in directories:
        try:
            there = next(one for one in (path, *path.parents) if one.is_dir())
            device = there.stat().st_dev
        except OSError:  # it is closed; `permissions` says so
            continue
        if device in seen:
            continue
        seen.add(device)
        free = shutil.disk_usage(there).free
        said = f"{show_bytes(free)} free for {what} in {there}"
        if free < _LEAST_FREE_BYTES:
            yield wrong("disk", f"{said}.", "localspec models rm MODEL  # or other room")
        else:
            yield fine("disk", said)
