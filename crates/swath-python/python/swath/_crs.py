"""A coordinate reference system as text that other libraries understand."""

from __future__ import annotations

import re
from typing import Any

_KIND = re.compile(r"\b(PROJCRS|PROJCS|PROJECTEDCRS|GEOGCRS|GEOGCS|GEOGRAPHICCRS|GEODCRS)\[")


class Crs(str):
    """A reference system: its code (``"EPSG:32633"``), or its WKT where it has no code.

    It is a string that pyproj, rasterio, GDAL and :func:`to_geotiff` accept.
    """

    __slots__ = ("_found",)
    _found: dict[str, Any]

    def __new__(cls, found: dict[str, Any]) -> Crs:
        self = super().__new__(cls, found["code"] or found["wkt"])
        self._found = found
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return Crs, (self._found,)

    @property
    def name(self) -> str:
        """The system's name, such as ``"WGS 84 / UTM zone 33N"``."""
        return self._found["name"]

    @property
    def is_projected(self) -> bool:
        """Whether coordinates are distances in a map projection."""
        return self._kind().startswith("PROJ")

    @property
    def is_geographic(self) -> bool:
        """Whether coordinates are longitude and latitude."""
        return self._kind().startswith("GEOG")

    def _kind(self) -> str:
        found = _KIND.search(self.to_wkt())
        return found[1] if found else ""

    def to_epsg(self) -> int | None:
        """Returns the EPSG code, or None. Where the file has none, pyproj searches for one, if it is installed."""
        if self._found["epsg"] is not None:
            return self._found["epsg"]
        try:
            import pyproj
        except ImportError:
            return None
        try:
            return pyproj.CRS.from_user_input(str(self)).to_epsg()
        except pyproj.exceptions.CRSError:
            return None

    def to_authority(self) -> tuple[str, str] | None:
        """Returns authority and code, such as ``("EPSG", "32633")``, or None."""
        authority, _, code = (self._found["code"] or "").partition(":")
        return (authority, code) if code else None

    def to_wkt(self) -> str:
        """Returns WKT, in the version of 2019 where the definition of the system is known."""
        return self._found["wkt"] or str(self)

    def to_string(self) -> str:
        """Returns the string itself."""
        return str(self)


def of(found: dict[str, Any] | None) -> Crs | None:
    """Returns the reference system of `metadata()["crs"]`; None where that has neither code nor WKT."""
    return Crs(found) if found and (found["code"] or found["wkt"]) else None
