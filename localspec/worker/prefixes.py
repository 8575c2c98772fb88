"""The prefix store of a worker: what its engine finds there, and what it keeps when it is idle.

A copy is valid for one content of the model's file, one build, one placement of the layers and one
class of forwards. A fingerprint holds all of these, and a copy is found under its own one alone.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from localspec.catalog import devices
from localspec.config import Cache
from localspec.engine.kv.prefixes import LEAST_TOKENS, FoundPrefix
from localspec.engine.kv.rollback import Checkpoint, Stored
from localspec.engine.step import Engine
from localspec.errors import NotServed
from localspec.prefixes import budget, files, identity
from localspec.prefixes.files import Part, PrefixFiles
from localspec.prefixes.store import Entry, PrefixStore
from localspec.prefixes.tokens import packed
from localspec.types import Token
from localspec.wire.values import PrefixFigures
from localspec.worker.loading_cost import LoadingCost, Medium
from localspec.worker.prefix_facts import PrefixFacts

CLOSING_SECONDS = 2.0
"""An unload waits this long for the disk; the supervisor waits 3 s for the whole unload."""
_PART = 8
"""In pauses a text is kept again once an eighth of it is new, so that a long conversation is
written about five times while it doubles, and not at each turn."""
TARGET = "target"


class WorkerPrefixes:
    """The `PrefixSource` of one engine, and what else its worker does with prefixes.

    `find` and the like belong to the engine's thread, `fetch` to any.

    Args:
        engine: Has the slots.
        settings: How much may be kept.
        facts: By role: "target", and "model" for the draft model.
        cost: What reading and loading take here.
        described: Whether every slot has a stream of its own now, and what else bits depend on.
        model: The model's name, for people.
        shares: By role, the time to read a token as a share of the target's.
        trims: Whether the target's memory can be cut to any length.
    """

    def __init__(  # noqa: PLR0913 - all that one store is about
        self,
        engine: Engine,
        settings: Cache,
        facts: Mapping[str, PrefixFacts],
        cost: LoadingCost,
        *,
        described: Callable[[], tuple[object, ...]],
        model: str,
        shares: Mapping[str, float],
        trims: bool,
    ) -> None:
        self._engine, self._facts, self._cost = engine, facts, cost
        self._described, self._shares, self._trims = described, shares, trims
        memory = budget.memory_bytes(settings.memory_bytes, devices.host().free_bytes)
        on_disk: PrefixFiles | None = None
        if settings.disk_bytes:
            root = files.directory()
            on_disk = PrefixFiles(root, files.secret(), budget.of_disk(settings.disk_bytes, root))
        self.store = PrefixStore(memory, on_disk, model)
        self.saved = PrefixFigures()
        self._keys: dict[Any, str | None] = {}
        self._told = PrefixFigures()
        self._learning: threading.Thread | None = None
        if facts and (memory or on_disk):
            self._begin_learning()
            engine.prefixes.source = self

    def _begin_learning(self) -> threading.Thread:
        if self._learning is None:
            self._learning = threading.Thread(target=self._learn, name="identity", daemon=True)
            self._learning.start()
        return self._learning

    def identified(self) -> str | None:
        """The key of copies of the target's memory; None while its file is being identified.

        Raises NotServed where the file cannot be identified, so that copies have no key.
        """
        key, running = self._key(TARGET), self._begin_learning().is_alive()
        if key is None and not running and (key := self._key(TARGET)) is None:
            raise NotServed("The memory of this model cannot be kept.")
        return key

    def _learn(self) -> None:
        """Identify the files by their content; each is read for this only once in its life."""
        for facts in self._facts.values():
            identity.learn(facts.files)
        self._keys.clear()

    def _key(self, role: str) -> str | None:
        shape = self._engine.shape
        strictly = (shape.multiple, shape.max_rows, shape.border, shape.alone)
        described = self._described()
        forwards = (described, strictly if described[0] else ())
        if role not in self._facts:
            return None
        known = self._keys.get((role, forwards))
        if known is None:
            known = self._keys[role, forwards] = self._facts[role].fingerprint(forwards)
        return known

    @property
    def ready(self) -> bool:
        """Whether the target's file has been identified."""
        return self._key(TARGET) is not None

    # --- finding ----------------------------------------------------------------------------------

    def find(self, model: str, client: str, text: Sequence[Token], held: int) -> FoundPrefix | None:
        """A copy that is worth loading, with its bytes in memory; None without one."""
        best = self._best(model, client, text, held)
        if best is None:
            return None
        entry, length = best
        parts = self._parts(entry)
        if parts is None:
            return None
        whole, *others = (
            (part.length, (ctypes.c_uint8 * len(part.data)).from_buffer(part.data))
            for part in parts
        )
        return FoundPrefix(
            text[:length],
            length,
            Stored(*whole, tuple(Checkpoint(*each) for each in others)),
            "disk" if entry.from_disk else "memory",
            lambda: self.store.used(entry),
            lambda: self.store.forget(entry),
        )

    def _best(
        self, model: str, client: str, text: Sequence[Token], held: int
    ) -> tuple[Entry, int] | None:
        """The kept text that shares most of this one, and how much, if loading it is faster."""
        key = self._key(model)
        if key is None or len(text) < held + LEAST_TOKENS:
            return None
        best = self.store.find(key, model, client, packed(text[: self._engine.shape.cells]))
        if best is None or best[1] < held + LEAST_TOKENS:
            return None
        entry, length = best
        medium: Medium = "memory" if entry.parts is not None else "disk"
        tokens = (length - held) * self._shares.get(model, 1.0)
        if not self._cost.worth(tokens, entry.size, medium):
            self._cost.passed_over(medium)
            return None
        return best

    def _parts(self, entry: Entry) -> tuple[Part, ...] | None:
        known, began = entry.parts, time.monotonic()
        parts = self.store.parts(entry)
        if known is None and parts is not None:
            self._cost.loaded(entry.size, time.monotonic() - began, "disk")
        return parts

    def fetch(self, client: str, text: Sequence[Token]) -> None:
        """Read the copy that a prompt is going to need from disk, before it has a slot.

        For any thread.
        """
        held = self._engine.shared(client, text)
        for role in self._facts:
            best = self._best(role, client, text, held)
            if best is not None and best[0].parts is None:
                self._parts(best[0])

    # --- keeping ----------------------------------------------------------------------------------

    def wants(
        self, model: str, client: str, tokens: Sequence[Token], size: int, least: int
    ) -> bool:
        """Whether there is room for a copy that gives `least` tokens more than any kept one."""
        key = self._key(model)
        if key is None or len(tokens) < least or not self.store.room(size):
            return False
        best = self.store.find(key, model, client, packed(tokens))
        return best is None or best[1] + least <= len(tokens)

    def keep(self, model: str, client: str, tokens: Sequence[Token], stored: Stored) -> None:
        """Keep a copy, in memory at once and on disk soon."""
        key = self._key(model)
        if key is None:
            return
        parts = [Part(stored.length, stored.state)]
        parts += [Part(each.length, each.state) for each in stored.checkpoints]
        trims = self._trims or model != TARGET
        lengths = () if trims else tuple(sorted({part.length for part in parts}))
        entry = Entry(key, model, client, packed(tokens), lengths, stored.size)
        self.store.keep(entry, parts, self._cost.reading(len(tokens)))

    def loaded(self, model: str, found: FoundPrefix, tokens: int, seconds: float) -> None:
        """Learn that a copy was loaded into a slot."""
        found.used()
        self._cost.loaded(found.stored.size, seconds, "memory")
        if model == TARGET:
            spared = max(0.0, self._cost.reading(tokens) - seconds)
            self.saved = self.saved.and_one(tokens, spared)

    def read(self, tokens: int, seconds: float) -> None:
        """Learn from a forward that read tokens of prompts and nothing else."""
        self._cost.read(tokens, seconds)

    # --- the worker's part ------------------------------------------------------------------------

    def figures(self) -> PrefixFigures:
        """The size of the store, and what it has saved since the model was loaded."""
        there = self.store.amount()
        return msgspec.structs.replace(
            self.saved,
            texts=there.texts,
            memory_bytes=there.memory_bytes,
            disk_bytes=there.disk_bytes,
        )

    def keep_all(self) -> None:
        """Keep what all idle slots hold before the model goes; waits for the disk for a while."""
        if self._engine.prefixes.source is None:
            return
        until = time.monotonic() + CLOSING_SECONDS
        self._begin_learning().join(CLOSING_SECONDS)
        self._engine.vacate()
        for slot, _ in self._engine.held():
            if time.monotonic() < until:
                self._engine.prefixes.keep(slot)
                self._engine.prefixes.keep_drafts(slot)
        self.store.close(max(0.0, until - time.monotonic()))
        self.note()

    def clear(self) -> None:
        """Forget everything: in memory, on disk, and in idle slots."""
        self._engine.vacate()
        for slot, _ in self._engine.held():
            self._engine.forget(slot)
        self.store.clear()

    def note(self) -> None:
        """Add the savings since the last note to the sum on disk."""
        if self.store.files is not None and self.saved != self._told:
            budget.add_saved(self.store.files.root, self.saved.since(self._told))
            self._told = self.saved


class KeepTexts:
    """Idle work: copies of what slots hold, one at a time. An `IdleTask`.

    Each text is copied at most once between two uses of its slot: where there is no room for all,
    copies would push each other out for ever. With `drafts`, what drafters have read of the texts
    is copied instead.
    """

    def __init__(self, engine: Engine, prefixes: WorkerPrefixes, *, drafts: bool = False) -> None:
        self._engine, self._prefixes, self._drafts = engine, prefixes, drafts
        self._seen: dict[int, int] = {}

    def advance(self, _now: float = 0.0) -> bool:
        """Copy one text; False where there is nothing to copy."""
        there = self._engine.prefixes
        for slot, _ in self._engine.held():
            used = self._engine.used(slot)
            if self._seen.get(slot) == used or not there.keeps(slot):
                continue
            self._seen[slot] = used
            if there.keep_drafts(slot, _PART) if self._drafts else there.keep(slot, _PART):
                return True
        self._prefixes.note()
        return False
