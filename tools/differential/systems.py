"""Random reference systems: swath reads GDAL's file as GDAL does, and GDAL reads the given system from swath's file."""

from __future__ import annotations

import json
import random
from pathlib import Path

import rasterio
from harness import Swath
from outcome import Outcome
from rasterio.crs import CRS
from rasterio.errors import CRSError
from rasterio.transform import Affine
from test_differential import alike, write_geo

ELLIPSOIDS = ("GRS80", "WGS84", "bessel", "intl", "clrk66", "airy", "krass", "clrk80")
HEIGHTS = (3855, 5703, 5773, 5705, 5783, 7837, 5621)


def user_defined(rng: random.Random) -> str:
    """A projection with parameters of its own."""
    lat, lon = round(rng.uniform(-70, 70), rng.choice((0, 2, 6))), round(rng.uniform(-180, 180), rng.choice((0, 2, 6)))
    first = round(rng.uniform(5, 35), 2)
    second = first + round(rng.uniform(5, 30), 2)
    false = f"+x_0={rng.choice((0, 500000, 1234.5))} +y_0={rng.choice((0, 10000000, -2000))}"
    figure = rng.choice((f"+ellps={rng.choice(ELLIPSOIDS)}", "+R=6371000", "+datum=NAD83", "+a=6378249.2 +b=6356515"))
    scale = rng.choice((1, 0.9996, 0.99984))
    units = rng.choice(("+units=m", "+units=m", "+units=us-ft", "+units=ft"))
    if rng.random() < 0.1:
        return f"+proj=longlat {figure} +no_defs"
    place = f"+lat_0={lat} +lon_0={lon}"
    parallels = f"+lat_1={first} +lat_2={second}"
    method = rng.choice(
        (
            f"lcc {parallels} {place}", f"aea {parallels} {place}", f"eqdc {parallels} {place}",
            f"tmerc {place} +k={scale}", f"stere {place} +k={scale}", f"lcc +lat_1={first} {place} +k_0={scale}",
            f"laea {place}", f"poly {place}", f"cass {place}", f"aeqd {place}", f"ortho {place}", f"gnom {place}",
            f"merc +lon_0={lon} +k={scale}", f"stere +lat_0=90 +lat_ts=70 +lon_0={lon}",
            f"stere +lat_0=-90 +lat_ts=-71 +lon_0={lon}", f"eqc +lat_ts={first} +lon_0={lon}",
            f"cea +lat_ts={first} +lon_0={lon}", f"omerc +lat_0={first} +lonc={lon} +alpha={second} +gamma={second}",
            f"sinu +lon_0={lon}", f"robin +lon_0={lon}", f"mill +lon_0={lon}",
        )
    )  # fmt: skip
    return f"+proj={method} {false} {figure} {units} +no_defs"


def drawn(rng: random.Random) -> tuple[str, CRS]:
    """A reference system and how it is given to swath: a code, two codes, or WKT."""
    while True:
        kind = rng.random()
        try:
            if kind < 0.35:
                code = rng.randrange(2000, 32767)
                return f"EPSG:{code}", CRS.from_epsg(code)
            if kind < 0.5:
                crs = CRS.from_epsg(rng.randrange(2000, 32767))
                return crs.to_wkt(version="WKT2_2019"), crs
            if kind < 0.6:
                name = f"EPSG:{rng.choice((32633, 25832, 2154, 27700, 4326, 4269, 26915))}+{rng.choice(HEIGHTS)}"
                return name, CRS.from_user_input(name)
            crs = CRS.from_proj4(user_defined(rng))
            return crs.to_wkt(version="WKT2_2019"), crs
        except CRSError:
            continue


def as_asked(given: str) -> CRS:
    """The system of a code even where it is deprecated; GDAL takes such a code for its successor's."""
    with rasterio.Env(OSR_USE_NON_DEPRECATED="NO"):
        return CRS.from_user_input(given)


class Systems:
    kind = "systems"

    def __init__(self, folder: Path, swath: Swath) -> None:
        self.folder, self.swath = folder, swath
        self.plain = folder / "plain.tif"
        write_geo(self.plain, transform=Affine(10, 0, 1000, 0, -10, 2000))

    def close(self) -> None:
        pass

    def case(self, index: int, seed: int) -> Outcome:
        rng = random.Random(f"{self.kind} {seed} {index}")
        given, crs = drawn(rng)
        theirs, ours = self.folder / "theirs.tif", self.folder / "ours.tif"
        facts = {"given": given, "proj": crs.to_proj4()}
        verdict = "equal"
        try:
            write_geo(theirs, crs, Affine(10, 0, 1000, 0, -10, 2000))
            with rasterio.open(theirs) as dataset:
                kept = dataset.crs
            facts["gdal"] = kept.to_wkt(version="WKT2_2019") if kept else "none"
            verdict = self.read(theirs, kept, facts)
            if verdict == "equal":
                verdict = self.written(given, crs, kept, ours, facts)
        except (CRSError, rasterio.errors.RasterioError) as error:
            facts["gdal"] = str(error)
            verdict = "not compared"
        finally:
            content = next((path.read_bytes() for path in (ours, theirs) if path.exists()), b"")
            # GDAL keeps what no key describes in a side file, which the next case must not find.
            for path in (ours, theirs):
                path.unlink(missing_ok=True)
                path.with_name(f"{path.name}.aux.xml").unlink(missing_ok=True)
        return Outcome(self.kind, index, verdict, facts, content)

    def read(self, path: Path, want: CRS | None, facts: dict[str, str]) -> str:
        run = self.swath.run("info", path, "--json")
        if run.code not in (0, 2) or run.timed_out:
            return "swath: crash"
        if not run.ok:
            facts["swath"] = run.stderr.strip()
            return "swath refuses to read it"
        got = json.loads(run.stdout).get("crs")
        facts["swath"] = str(got)
        if not got or not want:
            return "equal" if not got and not want else "read otherwise"
        return "equal" if alike(CRS.from_user_input(got), want) or alike(as_asked(got), want) else "read otherwise"

    def written(self, given: str, crs: CRS, kept: CRS | None, path: Path, facts: dict[str, str]) -> str:
        """Checks that GDAL reads the given system from swath's file, or the one that it reads from its own file."""
        words = self.folder / "given.wkt"
        words.write_text(given)
        run = self.swath.run("convert", self.plain, path, "--crs", words if len(given) > 40 else given, "-q")
        facts["swath"] = run.stderr.strip()
        if run.code not in (0, 2) or run.timed_out:
            return "swath: crash"
        if not run.ok:
            return "swath refuses to write it"
        with rasterio.open(path) as dataset:
            got = dataset.crs
        facts["got"] = got.to_wkt(version="WKT2_2019") if got else "none"
        if got and (alike(got, crs) or (kept and alike(got, kept))):
            return "equal"
        # swath writes the system that was asked for; GDAL would take another one for a deprecated code.
        with rasterio.Env(OSR_USE_NON_DEPRECATED="NO"), rasterio.open(path) as dataset:
            same = given.startswith("EPSG:") and dataset.crs and alike(dataset.crs, as_asked(given))
        return "equal" if same else "written otherwise"
