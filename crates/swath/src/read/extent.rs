//! Finds the pixels in a rectangle of coordinates.

use swath_tiff::Window;

use crate::{error::Error, open::dataset::Dataset};

/// Rounding error, in pixels, of coordinates that lie on an edge.
const SLACK: f64 = 1e-6;

impl Dataset {
    /// The pixels of the first image that a rectangle in the raster's own coordinates touches.
    ///
    /// # Errors
    /// When the raster has no transform, or the rectangle does not meet it.
    pub fn window_of(&self, west: f64, south: f64, east: f64, north: f64) -> Result<Window, Error> {
        let transform = self.metadata().georeference.transform;
        let inverse = transform.and_then(|transform| transform.inverse()).ok_or_else(|| {
            Error::usage(
                "the raster has no transform that gives pixels for coordinates; name a window of pixels instead",
            )
            .in_source(&self.name)
        })?;
        let corners = [(west, north), (east, north), (east, south), (west, south)].map(|(x, y)| inverse.apply(x, y));
        let range = |pick: fn(&(f64, f64)) -> f64, size: u32| {
            let values = corners.iter().map(pick);
            let low = values.clone().fold(f64::INFINITY, f64::min);
            let high = values.fold(f64::NEG_INFINITY, f64::max);
            let low = (low + SLACK).floor().max(0.0);
            let high = (high - SLACK).ceil().min(f64::from(size));
            (low < high).then_some((low as u32, (high - low) as u32))
        };
        let columns = range(|corner| corner.0, self.width());
        let rows = range(|corner| corner.1, self.height());
        let ((x, width), (y, height)) = columns.zip(rows).ok_or_else(|| {
            let (left, bottom, right, top) =
                transform.map(|transform| transform.bounds(self.width(), self.height())).unwrap_or_default();
            Error::usage(format!(
                "the rectangle {west},{south},{east},{north} does not overlap the raster, which covers \
                 {left},{bottom},{right},{top} (west,south,east,north)"
            ))
            .in_source(&self.name)
        })?;
        Ok(Window::new(x, y, width, height))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use swath_io::{MemorySink, MemorySource};
    use swath_tiff::{SampleType, geo::GeoTransform};

    use super::*;
    use crate::{Metadata, OpenOptions, Rows, Shape, WriteOptions, Writer};

    /// 10 × 8 pixels.
    fn raster(transform: Option<[f64; 6]>) -> Dataset {
        let mut metadata = Metadata::default();
        metadata.georeference.transform = transform.map(GeoTransform::from_affine);
        let shape = Shape { width: 10, height: 8, bands: 1, sample: SampleType::U8 };
        let (sink, memory) = MemorySink::new("memory");
        let mut writer = Writer::to_sink(Box::new(sink), shape, &metadata, &WriteOptions::default()).unwrap();
        writer.push(&Rows::bands(&[0_u8; 80])).unwrap();
        writer.finish().unwrap();
        OpenOptions::default().open_source(Arc::new(MemorySource::new("raster", memory.take().unwrap()))).unwrap()
    }

    #[test]
    fn pixels_that_are_touched_are_in_and_edges_touch_nothing() {
        let north_up = raster(Some([0.1, 0.0, 100.0, 0.0, -0.1, 50.0]));
        assert_eq!(north_up.window_of(100.1, 49.5, 100.3, 49.9).ok(), Some(Window::new(1, 1, 2, 4)));
        assert_eq!(north_up.window_of(100.11, 49.51, 100.31, 49.91).ok(), Some(Window::new(1, 0, 3, 5)));
        assert_eq!(north_up.window_of(0.0, 0.0, 1000.0, 1000.0).ok(), Some(Window::new(0, 0, 10, 8)));
        let south_up = raster(Some([0.1, 0.0, 100.0, 0.0, 0.1, 50.0]));
        assert_eq!(south_up.window_of(100.1, 50.5, 100.3, 50.8).ok(), Some(Window::new(1, 5, 2, 3)));
    }

    #[test]
    fn rectangles_outside_and_rasters_without_a_transform_are_refused() {
        let north_up = raster(Some([0.1, 0.0, 100.0, 0.0, -0.1, 50.0]));
        for [west, south, east, north] in [[0.0, 0.0, 1.0, 1.0], [101.0, 49.5, 102.0, 49.9], [f64::NAN; 4]] {
            let message = north_up.window_of(west, south, east, north).unwrap_err().to_string();
            assert!(message.contains("100,49.2,101,50"), "{message}");
        }
        let message = raster(None).window_of(0.0, 0.0, 1.0, 1.0).unwrap_err().to_string();
        assert!(message.starts_with("raster: the raster has no transform"), "{message}");
    }
}
