"""Chooses the predictor of a file that is not written from rows, as the writer of rows would."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from . import _swath
from ._engine_options import EngineOptions
from ._stream import Layout, to_host


def with_chosen(
    options: EngineOptions,
    metadata: dict[str, Any],
    layout: Layout,
    dtype: str,
    rows: Callable[[int, int], Any],
    mask: np.ndarray | None = None,
) -> EngineOptions:
    """Returns the options with the predictor that suits the samples; `rows` returns rows from a first up to a last."""
    if options.predictor != "best":
        return options
    shape = (layout.count, layout.height, layout.width)
    choice: Any = _swath.PredictorChoice(shape, dtype, metadata, options.native())
    row = 0
    while choice.chosen is None and row < layout.height:
        until = min(row + choice.rows_at_once, layout.height)
        part = np.ascontiguousarray(to_host(rows(row, until)), dtype=layout.dtype)
        choice.push(part, layout.axes, mask=None if mask is None else np.ascontiguousarray(mask[row:until]))
        row = until
    return replace(options, predictor=str(choice.chosen))
