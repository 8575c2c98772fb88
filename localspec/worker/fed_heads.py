"""Loads the head that drafts from the target's states: an EAGLE-3 head, or prediction layers (MTP).

If anything is wrong with a head, only its drafts are missing: the model answers without it, and its
status says why.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from localspec import built
from localspec.catalog import head_memory
from localspec.catalog.parts import Layout
from localspec.config import Placement
from localspec.errors import EngineError, ModelError
from localspec.types import Row
from localspec.wire.messages import Load
from localspec.worker import planning

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context
    from localspec.engine.llama.fed import FedContext
    from localspec.engine.llama.model import Model
    from localspec.engine.speculation.states import FeatureHead

_log = logging.getLogger("localspec.worker")

_FAR = (
    "the target's layers are on another machine, which would send what each row of a prompt leaves"
    " for it over the network"
)
_NO_BUILD = f"this llama.cpp was compiled without LocalSpec's edits (`{built.COMMAND}` mends that)"


class FedHead:
    """The head of one load.

    Args:
        command: Names the head, or why there is none.
        place: The device that was planned for it; None where there is no room.
        remote: Whether any layer of the target is on another machine.
        parts: Closes all that the head opens.
    """

    def __init__(
        self, command: Load, place: Layout | None, *, remote: bool, parts: ExitStack
    ) -> None:
        self._found, self._place, self._parts = command.head, place, parts
        self._tapped = False
        self.why = command.no_head
        if self._found is None:
            return
        if why := head_memory.unused(command):
            self._leave(why)
        elif remote:
            self._leave(_FAR)
        elif place is None:
            self._leave("there is no memory for it")

    def _leave(self, why: str) -> None:
        if self._found is not None:
            self.why = f"not used, {self._found.sentence}: {why}"
        self._found = None

    @property
    def part(self) -> str:
        """The part that its drafter is built with; "" without a head."""
        return self._found.kind if self._found is not None else ""

    @property
    def predicts(self) -> bool:
        """Whether the target has to be loaded with its prediction layers."""
        return self._found is not None and not self._found.path and self._found.kind == "mtp"

    @property
    def taps(self) -> tuple[str, ...]:
        """The taps of the target's forwards, for the key under which measurements are kept."""
        return () if not self._tapped or self._found is None else (str(self._found.layers),)

    @property
    def sentence(self) -> str:
        """The head that drafts, or why none does; "" where there is none."""
        return self._found.sentence if self._found is not None else self.why

    def beside(self, other: FeatureHead | None) -> str:
        """`sentence`, and that of the `other` kind of head where there is one."""
        return "; ".join(filter(None, (self.sentence, other.sentence if other else "")))

    def share(self, target: Path) -> float:
        """The cost of drafting a token as a share of a target's forward, estimated by bytes."""
        if self._found is None or not self._found.file_bytes:
            return _LAYER_SHARE
        return min(1.0, self._found.file_bytes / target.stat().st_size)

    def tap(self, target: Context) -> None:
        """Have the target's forwards leave the features for the head, from the first one on."""
        if self._found is None:
            return
        from localspec.engine.llama.library import ours  # noqa: PLC0415 - see `assemble.load`
        from localspec.engine.llama.vectors import Taps  # noqa: PLC0415 - as above

        mtp = self._found.kind == "mtp"
        if not ours.states:
            self._leave(_NO_BUILD)
        elif not target.tap(Taps(self._found.layers, following=mtp)):
            self._leave(f"llama.cpp's graph of a {target.model.architecture} has no taps")
        else:
            self._tapped = True

    def open(
        self, target: Context, *, placement: Placement, context: int, streams: bool
    ) -> FedContext | None:
        """Open the head's context, with as many slots as the target's; None without a usable head.

        It is on the device of the target's output, which is the last one.
        """
        if self._found is None or self._place is None:
            return None
        there = planning.placed(placement, self._place)
        try:
            with ExitStack() as parts:
                opened = self._opened(target, there, context, parts, streams=streams)
                _require_numbers(opened)
                self._parts.enter_context(parts.pop_all())
        except (ModelError, EngineError, MemoryError) as error:
            said = error.message if isinstance(error, (ModelError, EngineError)) else "no memory"
            _log.warning("the head is left out: %s", said)
            self._leave(said.rstrip("."))
            return None
        return opened

    def _opened(
        self,
        target: Context,
        placement: Placement,
        context: int,
        parts: ExitStack,
        *,
        streams: bool,
    ) -> FedContext:
        """Open the head's model and context. Raises ModelError, OutOfMemory."""
        from localspec.engine.llama.context import Context  # noqa: PLC0415 - see `assemble.load`
        from localspec.engine.llama.fed import FedContext  # noqa: PLC0415 - as above
        from localspec.engine.llama.model import Model  # noqa: PLC0415 - as above

        found, own = self._found, target.model
        assert found is not None  # noqa: S101 - `open` checks
        model: Model = own
        if found.path:
            model = Model.load(Path(found.path), placement, predicts=True)
            parts.callback(model.close)
        if found.kind == "eagle3" and not own.on_cpu and "output" in found.shares:
            raise ModelError("A head for a target on a device needs an output of its own.")
        beside = None
        if found.shares:
            anchor = Context.open(
                own,
                placement,
                slots=1,
                context=head_memory.ANCHOR_CELLS,
                rows=head_memory.ANCHOR_ROWS,
            )
            parts.callback(anchor.close)
            beside = anchor.handle
        opened = FedContext.open(
            model,
            placement,
            slots=target.n_slots,
            context=min(head_memory.CELLS, context),
            rows=head_memory.ROWS,
            streams=streams,
            inputs=len(found.layers) * own.width if found.layers else None,
            predicts=found.kind == "mtp",
            beside=beside,
        )
        parts.callback(opened.close)
        return opened


_LAYER_SHARE = 0.1
"""The share of prediction layers in the target's file: one layer of dozens, and output rows."""


def _require_numbers(head: FedContext) -> None:
    """Raise ModelError unless a forward of the head gives finite numbers. Leaves slot 0 empty."""
    vectors = head.fuse(np.ones((1, head.inputs), np.float32))
    output = head.decode([Row(0, 0, 0, wants_logits=True)], vectors)
    logits = output.logits[0]
    told = logits[logits != -np.inf]
    if not (len(told) and np.isfinite(told).all() and np.isfinite(output.vectors).all()):
        raise ModelError("The head gives no numbers: its file is damaged.")
    head.truncate(0, 0)


Opener = Callable[[], "FedContext | None"]
