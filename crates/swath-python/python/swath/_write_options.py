"""The options of `to_geotiff`, as the caller gives them: one dataclass that every step of a write reads."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from ._errors import UsageError


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """One field for each keyword of `to_geotiff`, with its default, and one for each profile option without a keyword.

    Values are the caller's own; `EngineOptions` holds what they mean to the engine.
    """

    # Georeference and metadata. `None` takes what a DataArray says; a plain array then has none.

    crs: Any = None
    """Reference system: EPSG code, "EPSG:32633", WKT, PROJ text, or an object with to_wkt()."""
    transform: Any = None
    """Affine, or its six numbers (a, b, c, d, e, f)."""
    gcps: Any = None
    """Ground control points."""
    rpcs: Any = None
    """Rational polynomial coefficients."""
    area_or_point: str | None = None
    """Whether a pixel stands for its "Area" or for a "Point"."""
    nodata: float | None = None
    """Value of missing pixels."""
    tags: Mapping[str, Any] | None = None
    """Metadata items by name, or mappings of them by domain."""
    band_descriptions: Sequence[str | None] | None = None
    """Name of each band."""
    band_units: Sequence[str | None] | None = None
    """Unit of each band."""
    scales: Sequence[float] | None = None
    """Factor of each band from stored samples to physical values."""
    offsets: Sequence[float] | None = None
    """Offset of each band, added after the scale."""
    colormap: Any = None
    """Palette: {value: (r, g, b)} of bytes, or rows of 16-bit (r, g, b)."""
    colorinterp: Sequence[Any] | None = None
    """Colour interpretation of each band, in GDAL's words."""
    mask: Any = None
    """Array in which 0 and False hide a pixel; None takes the mask of the file that a DataArray was read from."""
    extra_tags: Sequence[tuple[Any, ...]] | None = None
    """Further TIFF tags: (number, type, value) or (number, type, count, value)."""

    # Files beside the raster.

    category_names: Sequence[Any] | None = None
    """Names of the classes, stored in a file beside the raster."""
    color_ramp: str | bool | None = None
    """Name of the colour ramp in which QGIS shows the band, stored in a file beside the raster."""
    color_ramp_range: tuple[float, float] | None = None
    """Values of the first and the last colour of the ramp; None takes the smallest and the largest value."""

    # Reading the data.

    dims: Sequence[str] | None = None
    """Names of the axes of a plain array."""
    band_axis: int | None = None
    """Which of three axes holds the bands: 0 or -1."""
    dtype: Any = None
    """Type of the samples in the file; None takes that of the data."""
    pack: bool | None = None
    """Whether to undo the scales and offsets that reading applied; None does so where `encoding` has them."""
    nan_to_nodata: bool = True
    """Whether NaN is written as `nodata`."""
    recalc_transform: bool = True
    """Whether coordinates of the DataArray win over its stored transform."""

    # Encoding and layout of the file.

    compression: str | None = "zstd"
    """Name of the codec; None stores the samples uncompressed."""
    compression_level: int | None = None
    """Effort of deflate, zstd and lzma; None takes the codec's default."""
    quality: int | None = None
    """Quality of jpeg, webp and jpeg2000, from 1 to 100."""
    lossless: bool | None = None
    """Whether webp and jpeg2000 keep every sample; None is lossless unless there is a `quality`."""
    max_z_error: float = 0.0
    """Largest error that lerc may make."""
    predictor: str | int | bool = "auto"
    """Predictor, by name or by its number in the file; True means "auto", False means "none"."""
    nbits: int | None = None
    """Bits of a stored sample, where fewer than those of its type are enough."""
    tiled: bool = True
    """Whether the image is stored in tiles; otherwise in strips."""
    tile_size: int | tuple[int, int] = 512
    """Pixels along both sides of a tile, or (rows, columns)."""
    interleave: str = "pixel"
    """Whether a tile holds all bands of its pixels ("pixel"), or one band ("band")."""
    photometric: str | int = "auto"
    """Meaning of the samples as colour, by GDAL's name or by its number in the file."""
    alpha: str | bool | None = None
    """Kind of alpha in the last band: "unassociated" or "premultiplied"."""
    sparse: bool = False
    """Whether to leave out tiles that hold only zeros or only nodata."""
    bigtiff: bool | str | None = None
    """Whether file offsets have 64 bits; None decides by the size that the file may reach."""
    cog: bool = False
    """Whether to write a Cloud Optimized GeoTIFF."""
    overview_levels: int | Sequence[int] | str | None = None
    """Number of overviews, or their factors; None gives a COG overviews until one tile holds the image."""
    overview_resampling: str | None = "average"
    """How an overview pixel is computed from the pixels below it."""
    statistics: bool | None = None
    """Whether to store statistics of each band; None stores them in a COG."""

    # Running the write.

    device: Literal["cpu", "cuda", "gpu", "auto"] | None = None
    """What encodes the tiles; None takes the device that holds the samples."""
    gpu: bool | None = None
    """xarray-spatial's name for `device`: True is "cuda", False is "cpu"."""
    on_gpu_failure: Literal["raise", "strict", "auto"] = "raise"
    """Whether a failing GPU raises, or lets the CPU take over ("auto")."""
    threads: int | None = None
    """Number of threads that encode; None uses all cores."""
    max_memory: int | None = None
    """Bytes of host memory that the write may hold."""
    max_device_memory: int | None = None
    """Bytes of GPU memory that the write may hold."""
    streaming_buffer_bytes: int | None = None
    """Bytes of dask chunks held at a time."""
    scheduler: Any = None
    """What computes dask arrays; None takes dask's own choice."""
    compute: bool = True
    """Whether to write now; False returns a dask Delayed."""
    progress: Any = None
    """True for a progress bar, a function of (rows done, rows), or an object with update()."""
    storage_options: Mapping[str, Any] | None = None
    """Settings of the store behind an address."""

    # Profile options without a keyword of their own; they reach `to_geotiff` through **profile.

    driver: Any = None
    """GDAL's driver, GTiff or COG."""
    blockxsize: Any = None
    """Columns of a tile; wins over `tile_size`."""
    blockysize: Any = None
    """Rows of a tile or strip; wins over `tile_size`."""
    count: Any = None
    """Number of bands, compared with the data."""
    width: Any = None
    """Number of columns, compared with the data."""
    height: Any = None
    """Number of rows, compared with the data."""
    endianness: Any = None
    """Byte order of the file: "little", "big" or "native"."""
    subsampling: Any = None
    """Chroma subsampling of jpeg: 420, 422 or 444."""
    nvcomp: Any = None
    """Whether NVIDIA's nvCOMP encodes deflate and zstd on a GPU, instead of swath's kernels."""

    def with_profile(self, profile: Mapping[str, Any]) -> WriteOptions:
        """Returns these options with those of a profile of GDAL or rasterio, whose names may have any case."""
        changes: dict[str, Any] = {}
        # For each field that the profile sets, the name that the profile uses for it.
        profile_names: dict[str, str] = {}
        for profile_name, value in profile.items():
            lower = str(profile_name).lower()
            if lower in WITHOUT_EFFECT:
                continue
            name = ALIASES.get(lower, lower)
            if name not in DEFAULTS:
                raise UsageError(f"to_geotiff has no option {profile_name!r}{_hint(lower)}")
            before = changes.get(name, getattr(self, name))
            if (name in changes or not _same(before, DEFAULTS[name])) and not _same(_folded(before), _folded(value)):
                earlier = profile_names.get(name, name)
                raise UsageError(f"{earlier}={before!r} and {profile_name}={value!r} contradict each other: give one")
            profile_names[name] = str(profile_name)
            changes[name] = value
        return replace(self, **changes)


DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(WriteOptions)}

# Options of GDAL's drivers and of rasterio's profiles, with the field of `WriteOptions` that each of them sets.
ALIASES = {
    "compress": "compression",
    "level": "compression_level",
    "zlevel": "compression_level",
    "zstd_level": "compression_level",
    "lzma_preset": "compression_level",
    "deflate_level": "compression_level",
    "jpeg_quality": "quality",
    "webp_level": "quality",
    "webp_lossless": "lossless",
    "blocksize": "tile_size",
    "num_threads": "threads",
    "sparse_ok": "sparse",
    "overviews": "overview_levels",
    "overview_count": "overview_levels",
    "resampling": "overview_resampling",
}
# Options of rioxarray and xarray-spatial that ask for what swath always does, or permit what it never forbids.
WITHOUT_EFFECT = frozenset(
    {"windowed", "lock", "allow_internal_only_jpeg", "allow_experimental_codecs", "allow_unparseable_crs"}
)


def _hint(name: str) -> str:
    """Returns the known names nearest to a misspelt one, as the end of a message."""
    near = difflib.get_close_matches(name, sorted({*DEFAULTS, *ALIASES}), n=3, cutoff=0.6)
    return f"; did you mean {' or '.join(near)}?" if near else ""


def _same(one: Any, other: Any) -> bool:
    try:
        return bool(one is other or one == other)
    except (TypeError, ValueError):
        # Arrays compare element by element.
        return False


def _folded(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value
