#!/usr/bin/env python3
"""The quick start of the documentation: a lazy COG, its hillshade block by block, and chips of that."""

import numpy as np
import swath

terrain = swath.open_geotiff("demo/terrain-cog.tif", band=1, chunks=512, masked=True)  # nothing is read yet


def hillshade(heights: np.ndarray) -> np.ndarray:
    """Light from the north-west on 10 m pixels, 1 to 255; 0 where there is no terrain."""
    down, right = np.gradient(heights, 10.0)
    slope, aspect = np.arctan(np.hypot(down, right)), np.arctan2(down, -right)
    light = np.sqrt(0.5) * (np.cos(slope) + np.sin(slope) * np.cos(np.radians(135) - aspect))
    return np.where(np.isnan(light), 0, 1 + 254 * np.clip(light, 0, 1)).astype("uint8")


shade = terrain.copy(data=terrain.data.map_overlap(hillshade, depth=1, dtype="uint8"))
shade.swath.to_geotiff("demo/hillshade.tif", cog=True, nodata=0)  # block by block, overviews too, in bounded memory

for chips, windows in swath.Dataset("demo/hillshade.tif").chips(256, batch=16):  # (16, 1, 256, 256), read ahead
    print(f"{len(windows)} chips from {windows[0]}: mean light {np.asarray(chips).mean():.1f}")
