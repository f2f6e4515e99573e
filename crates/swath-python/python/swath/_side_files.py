"""Files beside a raster: names of its classes for GDAL (.aux.xml), its colours for QGIS (.qml), and stale ones."""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ._dataarray_metadata import for_bands
from ._errors import UsageError, WriteError, warn
from ._write_options import WriteOptions

# Larger side files are not searched for names.
MAX_SIDE_FILE_BYTES = 16 << 20

# What describes the pixels of a raster: overviews, mask, metadata and statistics, attribute table. The engine removes
# the same where it writes to a path.
ENDINGS = (".ovr", ".msk", ".aux.xml", ".vat.dbf")

# Attributes and first bytes of the styles that `color_ramp` writes; those of QGIS begin with a document type.
STYLE = {"version": "3.0", "styleCategories": "Symbology"}
STYLE_START = b'<qgis version="3.0" styleCategories="Symbology">'

# Colours at equal steps from the smallest to the largest value.
RAMPS = {
    "viridis": ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725"),
    "plasma": ("#0d0887", "#7e03a8", "#cc4778", "#f89540", "#f0f921"),
    "magma": ("#000004", "#51127c", "#b73779", "#fc8961", "#fcfdbf"),
    "inferno": ("#000004", "#57106e", "#bc3754", "#f98e09", "#fcffa4"),
    "cividis": ("#00224e", "#434e6c", "#7d7c78", "#bcae6c", "#fee838"),
    "greys": ("#ffffff", "#d9d9d9", "#959595", "#515151", "#000000"),
    "spectral": ("#9e0142", "#f98e52", "#ffffbe", "#86cfa5", "#5e4fa2"),
    "terrain": ("#333399", "#01cc66", "#fefe98", "#815e56", "#ffffff"),
}


@dataclass(frozen=True)
class SideFiles:
    """The files to write beside a raster once it is complete; false where there are none."""

    # The class names of each band that has any.
    categories: Mapping[int, Sequence[str]]
    colors: Sequence[str] | None
    # The values of the first and the last colour.
    color_range: tuple[float, float] | None

    def __bool__(self) -> bool:
        return bool(self.categories) or self.colors is not None

    @property
    def needs_statistics(self) -> bool:
        """Whether the colours depend on the smallest and largest value of the raster."""
        return self.colors is not None and self.color_range is None

    def write(self, path: str, measure: Callable[[str], tuple[float, float] | None]) -> None:
        """Writes the files beside the raster at `path`; `measure` returns its smallest and largest value."""
        if self.categories:
            _write_xml(Path(f"{path}.aux.xml"), _categories_xml(self.categories))
        if self.colors is None:
            return
        color_range = self.color_range or measure(path)
        if color_range is None:
            warn("color_ramp= is left out: all samples are missing; color_ramp_range= gives it a range")
        else:
            _write_xml(Path(path).with_suffix(".qml"), _style_xml(self.colors, *color_range))


def requested(options: WriteOptions, data: Any, count: int, *, local: bool) -> SideFiles:
    """Returns the side files that the caller, or the attributes of an xarray object, ask for."""
    given = options.category_names
    names = _names_of(data, count) if given is None else given
    categories = _categories(names, count, given=given is not None)
    colors = _ramp(options.color_ramp, count)
    color_range = _color_range(options.color_ramp_range, colors)
    if local:
        return SideFiles(categories, colors, color_range)
    if given is not None or colors is not None:
        name = "category_names" if given is not None else "color_ramp"
        raise UsageError(f"{name}= is kept in a file beside the raster: give a path on a local disk")
    if categories:
        warn("attrs['category_names'] is left out: it is kept in a file beside the raster, which needs a local path")
    return SideFiles({}, None, None)


def _names_of(data: Any, count: int) -> Any:
    """Returns the class names in the attributes of an xarray object: a list, or one list for each band."""
    rasters = [each for each in data.data_vars.values() if each.ndim > 1] if hasattr(data, "data_vars") else [data]
    found = [getattr(raster, "attrs", {}).get("category_names") for raster in rasters]
    if len(rasters) != 1:
        return [each or [] for each in found] if any(found) else None
    names: Any = found[0]
    if not _is_listed(names) or not hasattr(rasters[0], "coords"):
        return names
    chosen = for_bands(rasters[0], names, count)
    if chosen is None:
        warn(
            f"attrs['category_names'] is left out: it has names for {len(names)} bands, and no coordinate 'band' says "
            f"which of them the {count} bands of the raster are"
        )
    return chosen


def _is_listed(names: Any) -> bool:
    """Whether names are one list for each band."""
    listed = isinstance(names, Sequence) and not isinstance(names, str) and bool(names)
    return listed and all(isinstance(each, (list, tuple)) for each in names)


def _categories(names: Any, count: int, *, given: bool) -> dict[int, Sequence[str]]:
    if names is None or isinstance(names, str) or not isinstance(names, Sequence):
        if names is not None and given:
            raise UsageError(f"category_names={names!r}: give a list of texts, the first one for value 0")
        return {}
    lists = names if _is_listed(names) else [names]
    if len(lists) != count:
        if given:
            raise UsageError(f"category_names: {len(lists)} lists of names for {count} bands")
        warn(f"attrs['category_names'] is left out: it describes one band, and the raster has {count}")
        return {}
    return {band: [str(name) for name in each] for band, each in enumerate(lists, 1) if each}


def _ramp(ramp: Any, count: int) -> Sequence[str] | None:
    if ramp is None or ramp is False:
        return None
    name = "viridis" if ramp is True else str(ramp).lower()
    if name not in RAMPS:
        raise UsageError(f"color_ramp={ramp!r}: give True or one of {', '.join(RAMPS)}")
    if count != 1:
        raise UsageError(f"color_ramp={ramp!r}: a ramp is for one band, and the raster has {count}")
    return RAMPS[name]


def _color_range(given: Any, colors: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    if colors is None:
        raise UsageError(f"color_ramp_range={given!r} does nothing without color_ramp=")
    try:
        low, high = (float(value) for value in given)
    except (TypeError, ValueError):
        low = high = 0.0
    if not low < high:
        raise UsageError(f"color_ramp_range={given!r}: give (smallest, largest)")
    return low, high


def _categories_xml(categories: Mapping[int, Sequence[str]]) -> ElementTree.Element:
    root = ElementTree.Element("PAMDataset")
    for band, names in categories.items():
        listed = ElementTree.SubElement(ElementTree.SubElement(root, "PAMRasterBand", band=str(band)), "CategoryNames")
        for name in names:
            ElementTree.SubElement(listed, "Category").text = name
    return root


def _style_xml(colors: Sequence[str], low: float, high: float) -> ElementTree.Element:
    root = ElementTree.Element("qgis", STYLE)
    edges = {"classificationMin": repr(low), "classificationMax": repr(high)}
    attributes = {"type": "singlebandpseudocolor", "band": "1", "opacity": "1", "alphaBand": "-1"}
    renderer = ElementTree.SubElement(ElementTree.SubElement(root, "pipe"), "rasterrenderer", {**attributes, **edges})
    attributes = {"colorRampType": "INTERPOLATED", "classificationMode": "1", "clip": "0"}
    edges = {"minimumValue": repr(low), "maximumValue": repr(high)}
    shader = ElementTree.SubElement(
        ElementTree.SubElement(renderer, "rastershader"), "colorrampshader", attributes, **edges
    )
    for step, color in enumerate(colors):
        value = low + (high - low) * step / (len(colors) - 1)
        ElementTree.SubElement(shader, "item", value=repr(value), label=f"{value:.6g}", color=color, alpha="255")
    return root


def _write_xml(path: Path, root: ElementTree.Element) -> None:
    """Writes a file that appears under its name when it is complete."""
    ElementTree.indent(root)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        part.write_bytes(ElementTree.tostring(root, encoding="utf-8") + b"\n")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def file_behind(target: Any) -> Path | None:
    """Returns the path of the ordinary file that a file object is about to fill from its start, or None."""
    if not hasattr(target, "write"):
        return None
    try:
        path = Path(target.name)
        if target.tell() == 0 and path.is_file() and os.path.samestat(os.fstat(target.fileno()), path.stat()):
            return path
    except (AttributeError, OSError, TypeError, ValueError):
        # Not a file, not open, or without a name; the error depends on the kind of object.
        pass
    return None


def remove_stale(path: Path) -> None:
    """Removes the side files of the raster that was at `path` before."""
    for side in _sides(path):
        try:
            side.unlink(missing_ok=True)
        except OSError as error:
            raise WriteError(
                f"{path}: the file is written, but {side} describes the old one and cannot be removed: {error}"
            ) from error


def _sides(path: Path) -> Iterator[Path]:
    for ending in ENDINGS:
        for name in (path.name + ending, path.name + ending.upper()):
            side = path.with_name(name)
            if side.is_symlink() or side.is_file():
                # Overviews and masks are rasters with side files of their own.
                yield from _sides(side)
                yield side


def remove_own_style(path: str) -> None:
    """Removes the colours that an earlier `color_ramp` wrote for the raster at `path`; those of QGIS stay."""
    style = Path(path).with_suffix(".qml")
    try:
        if _read(style, len(STYLE_START)) == STYLE_START:
            style.unlink()
    except OSError:
        # There is no such file, or it cannot be read; it is a style, and no sample depends on it.
        pass


def _read(path: Path, most: int) -> bytes:
    """Returns the first bytes of an ordinary file. A pipe, which any user may have put there, does not block this."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"{path}: this is not an ordinary file")
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        # Something else may have taken the name meanwhile.
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path}: this is not an ordinary file")
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(most)
    finally:
        os.close(descriptor)


def category_names(side_files: Sequence[str], bands: Sequence[int]) -> list[list[str] | None]:
    """Returns the class names of each band, from GDAL's side files of a raster."""
    for name in side_files:
        if not name.endswith(".aux.xml"):
            continue
        try:
            content = _read(Path(name), MAX_SIDE_FILE_BYTES + 1)
            # A document type can define entities, a few of which stand for gigabytes. GDAL writes none. In UTF-16,
            # letters have zeros between them.
            if len(content) > MAX_SIDE_FILE_BYTES or b"<!DOCTYPE" in content.replace(b"\0", b""):
                continue
            root = ElementTree.fromstring(content)
        except (OSError, ElementTree.ParseError):
            # The engine reads this file too, and lists its defects among the problems of the raster.
            continue
        found = [root.find(f"PAMRasterBand[@band='{band}']/CategoryNames") for band in bands]
        if any(each is not None and len(each) for each in found):
            return [None if each is None else [one.text or "" for one in each.findall("Category")] for each in found]
    return [None] * len(bands)
