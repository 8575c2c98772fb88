"""Makes the compact file of a head that was taught."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from localspec.catalog.compact_heads import Trained, compact
from localspec.engine.llama.products import FORMATS, Products
from localspec.types import Floats
from localspec.worker.eagle3.shape import Shape
from localspec.worker.eagle3.texts import Ids

KIND = "q4_0"


def stored(  # noqa: PLR0913 - all that a file says
    products: Products,
    shape: Shape,
    weights: Mapping[str, Floats],
    words: Ids,
    *,
    key: str,
    name: str,
    kind: str = KIND,
) -> bytes:
    """The bytes of a compact head: matrices in the format `kind`, norms in F32."""

    def packed(weight: Floats) -> tuple[str, bytes]:
        if weight.ndim == 1:
            return "F32", np.ascontiguousarray(weight, "<f4").tobytes()
        return kind.upper(), products.quantized(weight, FORMATS[kind]).data.tobytes()

    return compact(
        Trained(
            name=name,
            key=key,
            sizes=shape.sizes,
            vocabulary=shape.vocabulary,
            layers=shape.layers,
            context=shape.context,
            epsilon=shape.epsilon,
            rope_base=shape.rope_base,
            words=words.tolist(),
            weights={each: packed(weights[each]) for each in shape.sizes.shapes()},
        )
    )
