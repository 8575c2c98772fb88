"""Saves, restores and erases what slots hold, as llama-server does, by files of the prefix store.

The engine's thread copies memory; another thread reads and writes files.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeAlias, TypeVar

from localspec.engine.adapters import owner
from localspec.engine.images import gaps
from localspec.engine.kv.prefixes import Storable
from localspec.engine.kv.rollback import Checkpoint, Stored
from localspec.engine.kv.slots import Slot, choose
from localspec.engine.session import Request
from localspec.engine.step import Engine
from localspec.errors import EngineError, LocalSpecError, NoRoom, NotServed, RequestError, known
from localspec.prefixes import files, saved
from localspec.prefixes.files import Header, Listed, Part
from localspec.prefixes.tokens import packed, unpacked
from localspec.wire.messages import Event, QuestionAnswer, SlotAction
from localspec.worker.answer import failed
from localspec.worker.prefixes import TARGET, WorkerPrefixes

_Result = TypeVar("_Result")
_Work: TypeAlias = Generator[None, None, QuestionAnswer]


class SlotFiles:
    """Carries out slot actions, each once its slot is idle. The engine's thread.

    Args:
        engine: Has the slots.
        prefixes: Has the key under which copies of the engine's memory may be used.
        model: The model's name, for people.
        send: Sends an answer.
        wake: Lets the service's loop go on. For any thread.
    """

    def __init__(
        self,
        engine: Engine,
        prefixes: WorkerPrefixes,
        model: str,
        send: Callable[[Event], None],
        wake: Callable[[], None],
    ) -> None:
        self._engine, self._prefixes, self._model = engine, prefixes, model
        self._send, self._wake = send, wake
        self._under_way: dict[str, _Work] = {}
        self._disk = ThreadPoolExecutor(1, "slots")

    def __len__(self) -> int:
        return len(self._under_way)

    def ids(self) -> Iterator[str]:
        """The ids of all actions under way."""
        yield from self._under_way

    def take(self, action: SlotAction) -> None:
        """Begin an action."""
        work = {"save": self._save, "restore": self._restore, "erase": self._erase}
        self._under_way[action.id] = work[action.action](action)
        self._wake()

    def cancel(self, id_: str) -> bool:
        """Drop an action whose client has gone; whether there was one. A file is still written."""
        return self._under_way.pop(id_, None) is not None

    def clear(self) -> None:
        """Drop all actions."""
        self._under_way.clear()

    def close(self) -> None:
        """Wait for the file that is being written."""
        self._disk.shutdown(wait=True, cancel_futures=True)

    def advance(self) -> None:
        """Continue every action that can go on.

        Raises:
            EngineError: a copy could not be restored, and what memory holds is unknown now.
        """
        for id_, work in list(self._under_way.items()):
            try:
                next(work)
                continue
            except StopIteration as end:
                answer: Event = end.value
            except Exception as error:
                if isinstance(error, EngineError) and not isinstance(error, NoRoom):
                    raise
                answer = failed(id_, known(error))
            del self._under_way[id_]
            self._send(answer)

    def _save(self, action: SlotAction) -> _Work:
        path, began = saved.place(action.filename), time.monotonic()
        key = yield from self._key()
        slot = yield from self._idle(action)
        text = Slot() if slot is None else self._engine.slot(slot)
        if slot is None or not self._mine(action, text) or not text.tokens:
            raise RequestError(f"Slot {action.slot} holds nothing to save.", param="id_slot")
        try:
            stored = self._target.stored(slot)
        except MemoryError as error:
            raise LocalSpecError("There is no memory for a copy of the slot.") from error
        tokens = text.tokens[: stored.length]
        parts = [Part(stored.length, stored.state)]
        parts += [Part(each.length, each.state) for each in stored.checkpoints]
        sizes = [(part.length, memoryview(part.data).nbytes) for part in parts]
        header = Header(
            key, self._model, TARGET, action.client, len(tokens), sizes, trims=True,
            adapters=text.adapters,
        )  # fmt: skip
        size = yield from self._done(
            lambda: saved.save(path, files.secret(), header, packed(tokens), parts)
        )
        return _answered(action, len(tokens), size, began)

    def _restore(self, action: SlotAction) -> _Work:
        path, began = saved.place(action.filename), time.monotonic()
        listed, parts = yield from self._done(
            lambda: saved.load(path, files.secret(), action.client)
        )
        key = yield from self._key()
        self._check(action, listed, key)
        adapters = tuple(listed.header.adapters)
        mine, tokens = owner(action.client, adapters), unpacked(listed.tokens)
        slot = yield from self._free(action, mine, tokens)
        whole, *others = (
            (part.length, (ctypes.c_uint8 * len(part.data)).from_buffer(part.data))
            for part in parts
        )
        stored = Stored(*whole, tuple(Checkpoint(*each) for each in others), gaps(tokens))
        engine, tokens = self._engine, tokens[: stored.length]
        engine.prefixes.lose(slot)
        engine.forget(slot)
        self._target.put_back(slot, stored)
        engine.remember(
            slot, Slot(mine, tokens, engine.steps, session=action.session, adapters=adapters)
        )
        return _answered(action, len(tokens), listed.bytes, began)

    def _erase(self, action: SlotAction) -> _Work:
        began = time.monotonic()
        slot = yield from self._idle(action)
        mine = slot is not None and self._mine(action, self._engine.slot(slot))
        held = self._engine.forget(slot).tokens if slot is not None and mine else []
        return _answered(action, len(held), 0, began)

    @property
    def _target(self) -> Storable:
        target = self._engine.backend
        if not isinstance(target, Storable):
            raise NotServed("The memory of this model cannot be copied.")
        return target

    def _check(self, action: SlotAction, listed: Listed, key: str) -> None:
        """Refuse a file of another key, or one too long for the context. Raises RequestError."""
        header, context = listed.header, self._engine.context
        if header.key != key or header.role != TARGET:
            raise RequestError(
                f'"{action.filename}" was saved by {header.model[:80]} with other weights, another '
                "build or other settings of the engine: its memory means nothing here.",
                fix="Read the prompt anew, and save that.",
                param="filename",
            )
        if header.tokens > context:
            raise RequestError(
                f'"{action.filename}" has {header.tokens} tokens; the context holds {context}.',
                fix="Raise engine.context in config.toml.",
                param="filename",
            )

    def _key(self) -> Generator[None, None, str]:
        """The key of copies of this memory, once the model's file has been identified."""
        while (key := self._prefixes.identified()) is None:
            yield
        return key

    def _idle(self, action: SlotAction) -> Generator[None, None, int | None]:
        """The slot of the action's conversation, once it is idle; None where there is none.

        If no slot holds that conversation, it is the slot of the action's number, unless the name
        of the conversation there begins with "slot ".
        """
        engine = self._engine
        engine.vacate()
        while any(self._is(action, each.request.session, each.request) for each in engine.sessions):
            yield
        for index, slot in enumerate(engine.slots):
            if not slot.busy and slot.session == action.session and self._mine(action, slot):
                return index
        if action.slot >= len(engine.slots):
            return None
        while (slot := engine.slot(action.slot)).busy:
            yield
        return None if slot.session.startswith("slot ") else action.slot

    @staticmethod
    def _is(action: SlotAction, session: str, request: Request) -> bool:
        """Whether a request belongs to the action's conversation."""
        mine = owner(action.client, request.adapters)
        return (session, request.client) == (action.session, mine)

    def _free(self, action: SlotAction, mine: str, tokens: list[int]) -> Generator[None, None, int]:
        """A slot to restore this text to, once there is one."""
        engine = self._engine
        engine.vacate()
        while any(self._is(action, each.request.session, each.request) for each in engine.sessions):
            yield
        while (chosen := choose(engine.slots, mine, tokens, action.session)) is None:
            yield
        return chosen[0]

    @staticmethod
    def _mine(action: SlotAction, text: Slot) -> bool:
        return text.client == owner(action.client, text.adapters)

    def _done(self, work: Callable[[], _Result]) -> Generator[None, None, _Result]:
        """Do work on the disk's thread, and wait for its result."""
        future: Future[_Result] = self._disk.submit(work)
        future.add_done_callback(lambda _: self._wake())
        while not future.done():
            yield
        return future.result()


def _answered(action: SlotAction, tokens: int, size: int, began: float) -> QuestionAnswer:
    seconds = time.monotonic() - began
    return QuestionAnswer(action.id, tokens=[tokens], size=size, seconds=seconds)
