"""Slots saved, restored and erased, end to end, as llama-server's clients do it."""

from __future__ import annotations

import asyncio
import shutil
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
import recurrent
import tiny
from full_disk import full_disk

from localspec.errors import LocalSpecError, RequestError
from localspec.prefixes import saved
from localspec.prefixes.files import Header, Part
from localspec_daemon.supervisor.worker import COMMAND

TEXT = "def add(a, b):\n    return a + b\n" * 6


@pytest.fixture
def real(harness: Any, daemon: Any) -> Any:
    """A daemon's directory with a small real model and no other store of prefixes."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf")
    harness.configure(
        engine={"context": 512, "slots": 3, "exactness": "strict"},
        cache={"memory_bytes": 0, "disk_bytes": 0},
    )
    return lambda: daemon(harness, COMMAND)


async def answer(it: Any, slot: int, text: str = TEXT, **fields: Any) -> Any:
    """An answer in that slot."""
    body = {"prompt": text, "n_predict": 8, "temperature": 0, "ignore_eos": True, "id_slot": slot}
    status, found = await it.post("/completion", body | fields)
    assert status == 200, found
    return found


async def act(it: Any, slot: object, action: str, name: str | None = "one.bin") -> Any:
    """Status and JSON of an action."""
    return await it.post(f"/slots/{slot}?action={action}", {"filename": name} if name else {})


def there(tmp_path: Path) -> Path:
    """The directory of saved slots."""
    return tmp_path / "state" / "localspec" / "slots"


@pytest.mark.parametrize("kind", ["cells", "state"])
def test_a_saved_slot_comes_back_in_another_place_and_after_a_restart(
    harness: Any, real: Any, tmp_path: Path, kind: str
) -> None:
    """Nothing of the prompt is read again, the words are the same, and others keep their slots."""
    if kind == "state":
        recurrent.mamba(harness.models / "alpha.gguf")
        harness.configure(engine={"exactness": "standard"})

    async def scene() -> None:
        async with real() as it:
            first = await answer(it, 1)
            assert first["timings"]["cache_n"] == 0
            status, saved = await act(it, 1, "save")
            assert status == 200
            held = first["tokens_evaluated"] + first["tokens_predicted"] - 1
            assert (saved["id_slot"], saved["filename"], saved["n_saved"]) == (1, "one.bin", held)
            file = there(tmp_path) / "one.bin"
            assert saved["n_written"] == file.stat().st_size
            assert saved["timings"]["save_ms"] > 0
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
            assert (await act(it, 1, "erase", None))[1] == {"id_slot": 1, "n_erased": held}
            assert (await act(it, 1, "erase", None))[1] == {"id_slot": 1, "n_erased": 0}
        async with real() as it:
            await answer(it, 2, "something else entirely" * 4)
            status, restored = await act(it, 0, "restore")
            assert status == 200
            assert (restored["n_restored"], restored["n_read"]) == (held, saved["n_written"])
            assert restored["timings"]["restore_ms"] > 0
            again = await answer(it, 0)
            assert again["content"] == first["content"]
            assert again["timings"]["cache_n"] > 0
            if kind == "cells":
                assert again["timings"]["cache_n"] == first["tokens_evaluated"] - 1
            other = await answer(it, 2, "something else entirely" * 4)
            assert other["timings"]["cache_n"] > 0

    asyncio.run(scene())


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "../one", "a/b", "/etc/passwd", "a\\b", "a\nb", "a\0b", ".hidden", "x" * 300,
     " a", "a ", "a.", "c:d", "a*", "\x7f", "\u202e"],
)  # fmt: skip
def test_a_name_never_leads_out_of_the_directory(real: Any, tmp_path: Path, name: str) -> None:
    """With save and with restore: 400, and nothing was written."""

    async def scene() -> None:
        async with real() as it:
            await answer(it, 1)
            for action in ("save", "restore"):
                status, told = await it.post(f"/slots/1?action={action}", {"filename": name})
                assert (status, told["error"]["param"]) == (400, "filename"), action

    asyncio.run(scene())
    assert not there(tmp_path).exists()


def test_wrong_slots_and_actions_are_named(real: Any) -> None:
    """And an empty slot has nothing to save, a name that was not saved nothing to restore."""

    async def scene() -> None:
        async with real() as it:
            for slot in (3, -1, 99, "x", "1e1", "9" * 400):
                status, told = await act(it, slot, "save")
                assert (status, told["error"]["param"]) == (400, "id_slot"), slot
            for action in ("", "delete", "SAVE"):
                status, told = await act(it, 0, action)
                assert (status, told["error"]["param"]) == (400, "action"), action
            assert (await act(it, 0, "save"))[0] == 400
            status, told = await act(it, 0, "restore", "none.bin")
            assert (status, told["error"]["param"]) == (400, "filename")
            assert (await act(it, 0, "save", None))[1]["error"]["param"] == "filename"

    asyncio.run(scene())


def test_a_file_that_is_damaged_or_of_another_model_is_refused(
    harness: Any, real: Any, tmp_path: Path
) -> None:
    """The slot keeps what it held, and the model goes on answering."""
    tiny.build(harness.models / "beta.gguf", seed=9)

    async def scene() -> None:
        async with real() as it:
            await answer(it, 1)
            assert (await act(it, 1, "save"))[0] == 200
            whole = (there(tmp_path) / "one.bin").read_bytes()
            for number, wrong in enumerate(
                (whole[:-1], whole[:100], b"", b"GGUF" + whole[4:],
                 whole[:-200] + bytes([whole[-200] ^ 1]) + whole[-199:])
            ):  # fmt: skip
                path = there(tmp_path) / f"wrong{number}"
                path.touch(0o600)
                path.write_bytes(wrong)
                status, told = await act(it, 0, "restore", path.name)
                assert (status, told["error"]["param"]) == (400, "filename")
            (there(tmp_path) / "link").symlink_to(there(tmp_path) / "one.bin")
            assert (await act(it, 0, "restore", "link"))[0] == 400
            shutil.copy(there(tmp_path) / "one.bin", there(tmp_path) / "open")
            (there(tmp_path) / "open").chmod(0o666)
            assert (await act(it, 0, "restore", "open"))[0] == 400
            status, told = await it.post(
                "/slots/0?action=restore&model=beta", {"filename": "one.bin"}
            )
            assert (status, told["error"]["param"]) == (400, "filename")
            assert "alpha" in told["error"]["message"]
            assert (await act(it, 1, "save", "one.bin"))[0] == 200
            assert (await answer(it, 1))["timings"]["cache_n"] > 0

    asyncio.run(scene())


def test_another_client_neither_gets_nor_overwrites_it() -> None:
    """Files belong to whoever read the prompt."""
    header = Header("ab" * 16, "alpha", "target", "me", 1, [(1, 3)], trims=True)
    path = saved.place("mine.bin")
    saved.save(path, b"k", header, b"\1\0\0\0", [Part(1, b"old")])
    with pytest.raises(RequestError, match="another client"):
        saved.load(path, b"k", "you")
    theirs = msgspec.structs.replace(header, client="you")
    with pytest.raises(RequestError, match="another client"):
        saved.save(path, b"k", theirs, b"\1\0\0\0", [Part(1, b"new")])
    assert bytes(saved.load(path, b"k", "me")[1][0].data) == b"old"


def test_a_busy_slot_is_waited_for(real: Any) -> None:
    """The action comes when the answer is over, and holds all of it."""

    async def scene() -> None:
        async with real() as it:
            await answer(it, 1)
            running = asyncio.create_task(answer(it, 1, n_predict=200))
            await it.until(lambda: it.model().requests == 1)
            status, saved = await act(it, 1, "save")
            told = await running
            assert status == 200
            assert saved["n_saved"] == told["tokens_evaluated"] + told["tokens_predicted"] - 1

    asyncio.run(scene())


def test_a_full_disk_is_a_sentence() -> None:
    """The old file stays, and nothing half written is left."""
    header = Header("ab" * 16, "alpha", "target", "me", 1, [(1, 3)], trims=True)
    path = saved.place("one.bin")
    saved.save(path, b"k", header, b"\1\0\0\0", [Part(1, b"old")])
    with full_disk(), pytest.raises(LocalSpecError, match="could not be written"):
        saved.save(path, b"k", header, b"\1\0\0\0", [Part(1, b"new")])
    assert bytes(saved.load(path, b"k", "me")[1][0].data) == b"old"
    assert [each.name for each in path.parent.iterdir()] == ["one.bin"]
