"""The repr of a dataset: a few lines of text, or an HTML table with a small picture."""

from __future__ import annotations

import base64
import html
import struct
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np

from ._errors import Error

if TYPE_CHECKING:
    from ._dataset import Dataset

# The longer side of a picture in pixels, and the most bytes of samples to decode for it: of a local file, and of a
# file behind an address.
_SIDE = 256
_MAX_LOCAL_BYTES = 16 << 20
_MAX_REMOTE_BYTES = 2 << 20

_STYLE = "text-align: left; vertical-align: top"


def _facts(dataset: Dataset) -> list[tuple[str, str]]:
    """Returns the labels and values that the repr shows."""
    about = dataset._about()
    bands = "1 band" if dataset.count == 1 else f"{dataset.count} bands"
    facts = [("size", f"{dataset.width} x {dataset.height} pixels, {bands} of {dataset.stored_dtype}")]
    if crs := dataset.crs:
        code = about["crs"]["code"]
        facts.append(("crs", f"{code} ({crs.name})" if code else crs.name or "without a code"))
    else:
        facts.append(("crs", "none"))
    if about["transform"]:
        edges = ", ".join(f"{edge:.10g}" for edge in dataset.bounds)
        across, down = dataset.res
        facts.append(("bounds", f"{edges} (pixels of {across:.10g} x {down:.10g})"))
    if any(value is not None for value in dataset.nodatavals):
        values = dict.fromkeys(str(value) for value in dataset.nodatavals)
        facts.append(("nodata", ", ".join(values)))
    names = [name for name in dataset.descriptions if name]
    if names:
        facts.append(("bands", ", ".join(names[:12]) + (", ..." if len(names) > 12 else "")))
    rows, columns = dataset.block_shape
    blocks = f"tiles of {columns} x {rows}" if dataset.tiled else f"strips of {rows} rows"
    layout = [blocks, about["compression"] or "uncompressed"]
    if dataset.count > 1:
        layout.append(f"interleaved by {about['interleave']}")
    if not dataset.closed:
        levels = len(dataset.overview_sizes)
        layout.append("no overviews" if not levels else "1 overview" if levels == 1 else f"{levels} overviews")
    facts.append(("layout", ", ".join(layout)))
    return facts


def _head(dataset: Dataset) -> str:
    return f"swath.Dataset {dataset.name!r}" + (" (closed)" if dataset.closed else "")


def text(dataset: Dataset) -> str:
    """Returns a line with the name, and one for each fact."""
    try:
        lines = [f"  {label:<8}{value}" for label, value in _facts(dataset)]
    except Error:
        # The file is closed, damaged or changed: show only what is known without reading it.
        lines = [f"  {'size':<8}{dataset.width} x {dataset.height} pixels, {dataset.count} x {dataset.stored_dtype}"]
    return "\n".join([f"<{_head(dataset)}>", *lines])


def table(dataset: Dataset) -> str:
    """Returns the facts as HTML, with a picture where that takes little work."""
    try:
        facts = _facts(dataset)
    except Error:
        return f"<pre>{html.escape(text(dataset))}</pre>"
    lines = "".join(
        f'<tr><th style="{_STYLE}">{label}</th><td style="{_STYLE}">{html.escape(value)}</td></tr>'
        for label, value in facts
    )
    image = ""
    if (picture := _picture(dataset)) is not None:
        data = base64.b64encode(_png(picture)).decode()
        image = f'<td style="{_STYLE}"><img alt="thumbnail" src="data:image/png;base64,{data}"></td>'
    return (
        f"<div><b>{html.escape(_head(dataset))}</b>"
        f'<table><tr><td style="{_STYLE}"><table>{lines}</table></td>{image}</tr></table></div>'
    )


def _level(dataset: Dataset, bands: int) -> tuple[int | None, tuple[int, int]] | None:
    """Returns the cheapest level for a picture (None is the full image) and its size; None if all cost too much."""
    levels: list[tuple[int | None, tuple[int, int]]] = [(None, (dataset.width, dataset.height))]
    levels += enumerate(dataset.overview_sizes)
    limit = _MAX_LOCAL_BYTES if dataset.remote_stats is None else _MAX_REMOTE_BYTES
    fitting = [level for level in levels if level[1][0] * level[1][1] * bands * dataset.dtype.itemsize <= limit]
    large = [level for level in fitting if max(level[1]) >= _SIDE]
    return (
        min(large, key=lambda level: max(level[1])) if large else max(fitting, key=lambda at: max(at[1]), default=None)
    )


def _picture(dataset: Dataset) -> np.ndarray | None:
    """Returns bytes (rows, columns, 4) of red, green, blue and opacity, or None where they would take long."""
    try:
        about = dataset._about()
        colors = [band["color"] for band in about["bands"]]
        rgb = colors[:3] == ["red", "green", "blue"]
        bands = [1, 2, 3] if rgb else [1]
        found = None if dataset.closed else _level(dataset, len(bands))
        if found is None:
            return None
        level, size = found
        step = -(-max(size) // _SIDE)
        samples = dataset.read(bands, overview_level=level, masked=True)[:, ::step, ::step]
        hidden = np.ma.getmaskarray(samples).all(axis=0)
        values = np.ma.getdata(samples)
        if colors[0] == "palette" and about["palette"]:
            table = np.array([color[:3] for color in dataset.colormap(1).values()], np.uint8)
            shown = table[np.minimum(values[0], len(table) - 1)]
        else:
            shown = np.moveaxis(_stretched(values, np.ma.getmaskarray(samples), plain=rgb), 0, -1)
    except (Error, MemoryError):
        # A damaged, unsupported or unreachable file still has the table.
        return None
    opacity = np.where(hidden, 0, 255).astype(np.uint8)
    return np.dstack([np.broadcast_to(shown, (*hidden.shape, 3)), opacity])


def _stretched(values: np.ndarray, hidden: np.ndarray, *, plain: bool) -> np.ndarray:
    """Returns samples as bytes: 8-bit colours unchanged, others stretched from the 2nd to the 98th percentile."""
    if plain and values.dtype == np.uint8:
        return values
    numbers = np.abs(values).astype(float) if values.dtype.kind == "c" else values.astype(float)
    valid = numbers[~hidden & np.isfinite(numbers)]
    low, high = np.percentile(valid, (2, 98)) if valid.size else (0.0, 1.0)
    if not high > low:
        low, high = low - 0.5, low + 0.5
    with np.errstate(all="ignore"):
        return np.nan_to_num(np.clip((numbers - low) / (high - low) * 255, 0, 255)).astype(np.uint8)


def _png(pixels: np.ndarray) -> bytes:
    """Encodes bytes (rows, columns, 4) as a PNG."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows, columns, _ = pixels.shape
    # Each row begins with the number of its filter: 0 for none.
    lines = np.zeros((rows, 1 + 4 * columns), np.uint8)
    lines[:, 1:] = pixels.reshape(rows, -1)
    head: Any = struct.pack(">IIBBBBB", columns, rows, 8, 6, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")
