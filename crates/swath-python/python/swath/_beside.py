"""Files beside a raster: names of its classes, as GDAL keeps them, and its colours, as QGIS does."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from ._errors import UsageError, warn

# A side file of more bytes is not looked at for names.
LONGEST = 16 << 20

# Colours at equal steps from the least to the largest value.
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
class Beside:
    """What is to be written beside a file, once it is whole."""

    # One list for each band that has names.
    categories: Mapping[int, Sequence[str]]
    colors: Sequence[str] | None
    limits: tuple[float, float] | None

    @property
    def nothing(self) -> bool:
        return not self.categories and self.colors is None

    def write(self, path: str, measure: Callable[[str], tuple[float, float] | None]) -> None:
        """Writes the files of a raster that lies at `path`; `measure` tells its least and largest value."""
        if self.categories:
            _put(Path(f"{path}.aux.xml"), _pam(self.categories))
        if self.colors is None:
            return
        limits = self.limits or measure(path)
        if limits is None:
            warn("color_ramp= is left out: all samples are missing; color_ramp_range= gives it a range")
        else:
            _put(Path(path).with_suffix(".qml"), _style(self.colors, *limits))


def asked(words: Mapping[str, Any], data: Any, count: int, *, local: bool) -> Beside:
    """What the caller and the attributes of xarray's object want beside the file."""
    given = words["category_names"]
    rasters = list(data.data_vars.values()) if hasattr(data, "data_vars") else [data]
    attrs = getattr(rasters[0], "attrs", {}) if len(rasters) == 1 else {}
    names = attrs.get("category_names") if given is None else given
    categories = _categories(names, count, named=given is not None)
    colors = _ramp(words["color_ramp"], count)
    limits = _limits(words["color_ramp_range"], colors)
    if local:
        return Beside(categories, colors, limits)
    if given is not None or colors is not None:
        word = "category_names" if given is not None else "color_ramp"
        raise UsageError(f"{word}= is kept in a file beside the raster: give a path on a local disk")
    if categories:
        warn(
            "attrs['category_names'] is left out: it is kept in a file beside the raster, and there is no place for one"
        )
    return Beside({}, None, None)


def _categories(names: Any, count: int, *, named: bool) -> dict[int, Sequence[str]]:
    if names is None or isinstance(names, str) or not isinstance(names, Sequence):
        if names is not None and named:
            raise UsageError(f"category_names={names!r}: give a list of texts, the first one for value 0")
        return {}
    lists = names if names and all(isinstance(each, (list, tuple)) for each in names) else [names]
    if len(lists) != count:
        if named:
            raise UsageError(f"category_names: {len(lists)} lists of names for {count} bands")
        warn(f"attrs['category_names'] is left out: it is of one band, and the raster has {count}")
        return {}
    return {band: [str(name) for name in each] for band, each in enumerate(lists, 1) if each}


def _ramp(word: Any, count: int) -> Sequence[str] | None:
    if word is None or word is False:
        return None
    name = "viridis" if word is True else str(word).lower()
    if name not in RAMPS:
        raise UsageError(f"color_ramp={word!r}: give True or one of {', '.join(RAMPS)}")
    if count != 1:
        raise UsageError(f"color_ramp={word!r}: a ramp is for one band, and the raster has {count}")
    return RAMPS[name]


def _limits(given: Any, colors: Any) -> tuple[float, float] | None:
    if given is None:
        return None
    if colors is None:
        raise UsageError(f"color_ramp_range={given!r} does nothing without color_ramp=")
    try:
        low, high = (float(value) for value in given)
    except (TypeError, ValueError):
        low = high = 0.0
    if not low < high:
        raise UsageError(f"color_ramp_range={given!r}: give (least, largest)")
    return low, high


def _pam(categories: Mapping[int, Sequence[str]]) -> ElementTree.Element:
    root = ElementTree.Element("PAMDataset")
    for band, names in categories.items():
        listed = ElementTree.SubElement(ElementTree.SubElement(root, "PAMRasterBand", band=str(band)), "CategoryNames")
        for name in names:
            ElementTree.SubElement(listed, "Category").text = name
    return root


def _style(colors: Sequence[str], low: float, high: float) -> ElementTree.Element:
    root = ElementTree.Element("qgis", version="3.0", styleCategories="Symbology")
    edges = {"classificationMin": repr(low), "classificationMax": repr(high)}
    words = {"type": "singlebandpseudocolor", "band": "1", "opacity": "1", "alphaBand": "-1"}
    renderer = ElementTree.SubElement(ElementTree.SubElement(root, "pipe"), "rasterrenderer", {**words, **edges})
    words = {"colorRampType": "INTERPOLATED", "classificationMode": "1", "clip": "0"}
    edges = {"minimumValue": repr(low), "maximumValue": repr(high)}
    shader = ElementTree.SubElement(ElementTree.SubElement(renderer, "rastershader"), "colorrampshader", words, **edges)
    for step, color in enumerate(colors):
        value = low + (high - low) * step / (len(colors) - 1)
        ElementTree.SubElement(shader, "item", value=repr(value), label=f"{value:.6g}", color=color, alpha="255")
    return root


def _put(path: Path, root: ElementTree.Element) -> None:
    """Writes a file that appears when it is whole."""
    ElementTree.indent(root)
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        part.write_bytes(ElementTree.tostring(root, encoding="utf-8") + b"\n")
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def category_names(side_files: Sequence[str], band: int) -> list[str] | None:
    """Names of the classes of a band, from the side files of GDAL that belong to a raster."""
    for name in side_files:
        if not name.endswith(".aux.xml"):
            continue
        try:
            if Path(name).stat().st_size > LONGEST:
                continue
            root = ElementTree.fromstring(Path(name).read_bytes())
        except (OSError, ElementTree.ParseError):
            # The engine, which read the file for everything else, lists what is wrong with it.
            continue
        found = root.find(f"PAMRasterBand[@band='{band}']/CategoryNames")
        if found is not None and len(found):
            return [category.text or "" for category in found.findall("Category")]
    return None
