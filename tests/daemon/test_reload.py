"""Changes of the configuration and the models while the daemon runs."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny
from serving import Stream


def test_a_changed_configuration_takes_effect_and_a_broken_one_does_not(
    harness: Any, daemon: Any
) -> None:
    """The file is watched; after a mistake the last valid one stays and the status says why."""
    harness.add("beta")

    async def scene() -> None:
        async with daemon(harness) as it:
            supervisor = it.server.supervisor
            harness.configure(models={"default": "beta"}, sampling={"temperature": 0.1})
            await it.until(lambda: supervisor.config.models.default == "beta")
            assert (await it.ask("say hi"))[1]["model"] == "beta"
            harness.config_path.write_text("[modles]\n")
            await it.until(lambda: supervisor.config_error is not None)
            report = await it.get("/v1/status")
            assert "Did you mean models?" in report["config_error"]
            assert report["default_model"] == "beta"
            harness.configure(server={"tcp": "127.0.0.1:0"})
            await it.until(lambda: supervisor.config_error is None)
            assert (await it.get("/v1/status"))["restart_needed"] == ["server.tcp"]

    asyncio.run(scene())


def test_a_default_that_is_none_is_told_as_a_setting(harness: Any, daemon: Any) -> None:
    """Whoever names no model, or an alias of the default, reads which key is wrong and the fix."""
    harness.configure(models={"default": "nope", "aliases": {"gpt-*": ""}})

    async def scene() -> None:
        async with daemon(harness) as it:
            for fields in ({}, {"model": ""}, {"model": "default"}, {"model": "gpt-9"}):
                status, body = await it.ask("say hi", **fields)
                assert status == 404, fields
                assert body["error"]["message"].startswith(
                    'models.default: There is no model "nope"'
                )
                assert "localspec config set models.default" in body["error"]["fix"]
            _, body = await it.ask("say hi", model="neither")
            assert "models.default" not in body["error"]["message"] + body["error"]["fix"]
            assert (await it.ask("say hi", model="alpha"))[0] == 200

    asyncio.run(scene())


def test_a_machine_with_holes_is_told_before_anything_is_loaded(harness: Any, daemon: Any) -> None:
    """An incomplete table of a machine is an error of the request; a complete one works."""
    table = harness.root / "table.toml"
    table.write_text('name = "n"\nsource = "s"\ntarget = { steady_ms = {} }\n')
    harness.configure(engine={"machine": str(table)})

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("say hi")
            assert (status, answer["error"]["code"]) == (400, "config_error")
            assert str(table) in answer["error"]["message"]
            assert it.server.supervisor.pool.models == {}
            steady = "{ steady_ms = { 1 = 2.0 } }"
            table.write_text(f'name = "n"\nsource = "s"\ntarget = {steady}\ndraft = {steady}\n')
            assert (await it.ask("say hi"))[0] == 200
            assert it.model().load.machine.name == "n"

    asyncio.run(scene())


@pytest.mark.parametrize("put", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_what_is_no_file_is_a_mistake_like_others(
    harness: Any, daemon: Any, put: Callable[[Path], None]
) -> None:
    """In the place of the configuration; the next file there is read."""
    harness.configure(engine={"slots": 3})

    async def scene() -> None:
        async with daemon(harness) as it:
            supervisor, place = it.server.supervisor, harness.config_path
            text = place.read_text()
            place.unlink()
            put(place)
            await it.until(lambda: "cannot be read" in (supervisor.config_error or ""))
            assert supervisor.config.engine.slots == 3
            place.rename(place.with_name("aside"))
            place.write_text(text.replace("3", "2"))
            await it.until(lambda: supervisor.config.engine.slots == 2)
            assert supervisor.config_error is None

    asyncio.run(scene())


def test_sighup_reloads_at_once(harness: Any, daemon: Any) -> None:
    """Even for an unchanged file: a failed model may be loaded again."""
    harness.add("doomed")

    async def scene() -> None:
        async with daemon(harness) as it:
            for _ in range(3):
                await it.ask("say hi", model="doomed")
            assert it.model("doomed").state == "failed"
            os.kill(os.getpid(), signal.SIGHUP)
            await it.until(lambda: "doomed" not in it.server.supervisor.pool.models)
            _, answer = await it.ask("say hi", model="doomed")
            assert "crashed 4 times" not in answer["error"]["message"]

    asyncio.run(scene())


def test_a_new_model_can_be_asked_for_at_once(harness: Any, daemon: Any) -> None:
    """A file put into the directory is a model; a removed one is unknown."""

    async def scene() -> None:
        async with daemon(harness) as it:
            assert (await it.ask("say hi", model="late"))[0] == 404
            harness.add("late")
            assert (await it.ask("say hi", model="late"))[0] == 200
            (harness.models / "late.gguf").unlink()
            await it.until(lambda: "late" not in it.server.supervisor.pool.models)
            assert (await it.ask("say hi", model="late"))[0] == 404

    asyncio.run(scene())


def test_new_engine_settings_wait_for_running_answers(harness: Any, daemon: Any) -> None:
    """The stream keeps its worker to the end; the next request's worker has the new settings."""

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("wait") as stream:
                await stream.next("data: ")
                old = it.model()
                harness.configure(engine={"slots": 2})
                await it.until(lambda: it.server.supervisor.pool.models.get("alpha") is not old)
                assert old.worker is not None
            await it.ask("say hi")
            assert it.model().load.config.engine.slots == 2
            assert it.model().worker is not old.worker
            await it.until(lambda: not old.resident)

    asyncio.run(scene())


def test_settings_of_the_supervisor_alone_restart_nothing(harness: Any, daemon: Any) -> None:
    """keep_alive, queue and sampling defaults apply to the present worker."""

    async def scene() -> None:
        async with daemon(harness) as it:
            await it.ask("say hi")
            worker = it.model().worker
            harness.configure(server={"max_queue": 7}, sampling={"temperature": 0.1})
            await it.until(lambda: it.server.supervisor.config.server.max_queue == 7)
            await it.ask("say hi")
            assert it.model().worker is worker

    asyncio.run(scene())


def test_a_model_replaced_by_rename_is_swapped_after_its_answers(harness: Any, daemon: Any) -> None:
    """The old file serves its stream to the end; the next request loads the new one."""
    new = tiny.build(harness.root / "new.gguf", seed=1)

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("wait") as stream:
                await stream.next("data: ")
                old = it.model()
                shutil.move(new, harness.models / "alpha.gguf")
                waiting = asyncio.create_task(it.ask("say hi"))
                await it.until(lambda: it.model() is not old)
                assert old.worker is not None
            assert (await waiting)[0] == 200
            assert it.model().worker is not None

    asyncio.run(scene())


def test_what_events_lost_the_rescan_finds(harness: Any, daemon: Any) -> None:
    """A directory created after the start is watched too."""
    shutil.rmtree(harness.models)

    async def scene() -> None:
        async with daemon(harness) as it:
            assert (await it.get("/v1/models"))["data"] == []
            harness.add("alpha")
            assert (await it.ask("say hi"))[0] == 200
            os.kill(os.getpid(), signal.SIGHUP)
            (harness.models / "alpha.gguf").unlink()
            await it.until(lambda: not it.server.supervisor.pool.models)

    asyncio.run(scene())


def test_a_models_directory_that_cannot_be_read_is_said_and_survived(
    harness: Any, daemon: Any
) -> None:
    """A symlink loop in its place is an error with the reason, and recovery is automatic."""
    away = harness.root / "away"

    async def scene() -> None:
        async with daemon(harness) as it:
            harness.models.rename(away)
            harness.models.symlink_to(harness.models)
            status, answer = await it.ask("say hi")
            assert (status, answer["error"]["code"]) == (400, "config_error")
            assert str(harness.models) in (await it.get("/v1/status"))["config_error"]
            os.kill(os.getpid(), signal.SIGHUP)
            harness.models.unlink()
            away.rename(harness.models)
            assert (await it.ask("say hi"))[0] == 200

    asyncio.run(scene())


@pytest.mark.timeout(60)
def test_a_stream_of_models_outlives_a_directory_that_cannot_be_read(
    harness: Any, daemon: Any
) -> None:
    """It goes on at the first look at which the directory can be read again."""
    away = harness.root / "away"
    harness.models.rename(away)
    harness.models.symlink_to(harness.models)

    async def scene() -> None:
        async with daemon(harness) as it, it.http.get("/models/sse") as response:
            stream = Stream(response)
            await stream.next(": models")
            assert (await it.ask("say hi"))[0] == 400
            harness.models.unlink()
            away.rename(harness.models)
            assert "alpha" in await stream.next("data: ")

    asyncio.run(scene())
