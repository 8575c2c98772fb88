"""The images of requests: checked, decoded, and turned into rows by the model's projector.

Images are not trusted. Pillow decodes them here, in the worker, after their formats and dimensions
were checked; llama.cpp gets only pixels.
"""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from localspec.engine.images import EncodedImage, ImageRows, placed
from localspec.errors import EngineError, ModelError, RequestError
from localspec.types import Token
from localspec.wire.messages import Generate, Load, Message
from localspec.wire.values import MARKS, Image

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context
    from localspec.engine.llama.images import Picture, Projector

_log = logging.getLogger("localspec.worker")

FORMATS = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
MAX_PIXELS = 64 * 1024 * 1024
"""Decoded pixels of one image, a fifth of a gigabyte: more than phones' cameras take by default."""
MAX_SIDE = 4096
"""Larger pictures are scaled down to it: no projector uses more, and some copy the picture."""
MAX_IMAGES = 32
"""Images of one request: each takes hundreds of tokens."""
UNSEEN = "[An image, which this model cannot see.]"
"""Replaces an image in a tool's result, where the model reads none. Agents send it again with every
turn, so an error would end that conversation for good. An image that a user attached is refused."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The images of one request: the tokens of each by its mark in the text, and their rows."""

    tokens: Mapping[str, list[Token]] = field(default_factory=dict)
    _rows: Sequence[EncodedImage] = ()

    def placed(self, prompt: Sequence[Token]) -> list[ImageRows]:
        """The images at their places in a prompt. Raises RequestError if one is lost, or last."""
        try:
            found = placed(prompt, self._rows)
        except ValueError as error:
            raise RequestError(f"An image of the prompt is lost: {error}.") from error
        if found and found[-1].end == len(prompt):
            raise RequestError(
                "The prompt ends with an image; a token has to follow it.",
                fix="Send some text behind the image.",
                param="messages",
            )
        return found


NONE = Seen()
NO_PROJECTOR = "this model reads none: there is no projector for it (an mmproj-*.gguf beside it)"


class Images:
    """Reads the images of requests. Model lifetime; any thread.

    Args:
        projector: Makes rows of images; None where the model reads none.
        why: Why it reads none, in words that follow "an image, and".
        most_rows: The most rows of a forward, and of an image whose rows attend to each other.
    """

    def __init__(self, projector: Projector | None, why: str, most_rows: int) -> None:
        self._projector, self._why, self._most_rows = projector, why, most_rows

    @property
    def sees(self) -> bool:
        """Whether the model reads images."""
        return self._projector is not None

    @property
    def sentence(self) -> str:
        """The projector's file, or why there is none; "" where none is expected."""
        if self._projector is not None:
            return self._projector.name
        return "" if self._why == NO_PROJECTOR else f"none: {self._why}"

    def read(self, request: Generate) -> tuple[Generate, Seen]:
        """The request and its images; without a projector, images of tools become a note.

        Raises RequestError, which names the image.
        """
        images = [*images_of(request)]
        if not images:
            return request, NONE
        if self._projector is None:
            return self._without(request), NONE
        if len(images) > MAX_IMAGES:
            raise RequestError(
                f"The request has {len(images)} images; {MAX_IMAGES} may be.",
                fix="Leave the older ones out.",
                param=images[MAX_IMAGES].param,
            )
        tokens: dict[str, list[Token]] = {}
        rows: list[EncodedImage] = []
        for image in images:
            if image.mark not in tokens:
                tokens[image.mark] = []
                for piece in self._pieces(self._projector, request.client, image):
                    if isinstance(piece, list):
                        tokens[image.mark] += piece
                    else:
                        tokens[image.mark] += piece.stand_ins
                        rows.append(piece)
        return request, Seen(tokens, rows)

    def _pieces(
        self, projector: Projector, client: str, image: Image
    ) -> Sequence[list[Token] | EncodedImage]:
        try:
            pieces = projector.read(picture(image, client))
        except EngineError as error:
            raise RequestError(f"{image.param}: {error.message}", param=image.param) from error
        whole = [len(piece.vectors) for piece in pieces if not isinstance(piece, list)]
        if projector.whole and max(whole, default=0) > self._most_rows:
            raise RequestError(
                f"{image.param} takes {max(whole)} rows, which have to be read in one forward; "
                f"{self._most_rows} fit.",
                fix="Send a smaller image.",
                param=image.param,
            )
        return pieces

    def _without(self, request: Generate) -> Generate:
        messages = [self._noted(message) for message in request.messages or ()]
        return msgspec.structs.replace(request, messages=messages)

    def _noted(self, message: Message) -> Message:
        for image in message.images:
            if message.role != "tool":
                raise RequestError(
                    f"{image.param} is an image, and {self._why}.",
                    fix="Leave it out, describe in words what it shows, or ask a model that sees.",
                    param=image.param,
                )
        seen = {image.mark for image in message.images}
        content = MARKS.sub(lambda it: UNSEEN if it[0] in seen else it[0], message.content)
        return Message(message.role, content, message.extra)


def opened(command: Load, target: Context, parts: ExitStack) -> Images:
    """The reader of images for a load. With a bad projector, only images are refused."""
    why = command.no_projector or NO_PROJECTOR
    if command.projector and command.machine:
        why = "a simulated machine has no price for them"
    elif command.projector:
        from localspec.engine.llama.images import Projector  # noqa: PLC0415 - imported late

        gpu = not target.model.on_cpu
        try:
            file = Path(command.projector)
            found = Projector.open(file, target.model, threads=target.threads, gpu=gpu)
        except ModelError as error:
            why = error.message.rstrip(".")
            _log.warning("images are refused: %s", why)
        else:
            parts.callback(found.close)
            return Images(found, "", target.max_rows)
    return Images(None, why, target.max_rows)


def images_of(request: Generate) -> Iterator[Image]:
    """All images of a request, in order."""
    for message in request.messages or ():
        yield from message.images


def picture(image: Image, client: str) -> Picture:
    """The decoded image of a client. Raises RequestError, which says what is wrong with it."""
    from PIL import Image as Pillow  # noqa: PLC0415 - most workers never see one
    from PIL import ImageOps  # noqa: PLC0415 - the same

    from localspec.engine.llama.images import Picture  # noqa: PLC0415 - llama.cpp is imported late

    try:
        opened = Pillow.open(io.BytesIO(image.data), formats=FORMATS)
    except Exception as error:
        raise _refused(image, "is no image of a known format", error) from error
    width, height = opened.size
    if width * height > MAX_PIXELS:
        raise RequestError(
            f"{image.param} has {width} x {height} pixels; {MAX_PIXELS} may be.",
            fix="Send a smaller image.",
            param=image.param,
        )
    try:
        opened.thumbnail((MAX_SIDE, MAX_SIDE))
        turned = ImageOps.exif_transpose(opened)
        if turned.has_transparency_data:
            white = Pillow.new("RGBA", turned.size, "white")
            turned = Pillow.alpha_composite(white, turned.convert("RGBA"))
        plain = turned.convert("RGB")
    except Exception as error:
        raise _refused(image, "cannot be decoded", error) from error
    key = client.encode() + b"\0" + image.mark.encode()
    return Picture(plain.width, plain.height, plain.tobytes(), key)


def _refused(image: Image, what: str, error: Exception) -> RequestError:
    _log.info("an image was refused: %r", error)
    return RequestError(
        f"{image.param} {what}.",
        fix=f"Send a whole file: {', '.join(FORMATS)}.",
        param=image.param,
    )
