//! A picture in memory that is written as PNG.

use std::{
    io::{self, Write},
    path::Path,
};

use anyhow::Result;
use swath::tiff::stored_position;

/// Pixels of red, green, blue and opacity.
pub struct Picture {
    width: u32,
    height: u32,
    gray: bool,
    pixels: Vec<[u8; 4]>,
}

impl Picture {
    /// Returns an empty picture; `gray` promises that red, green and blue will be equal.
    pub fn new(width: u32, height: u32, gray: bool) -> Self {
        Self { width, height, gray, pixels: vec![[0; 4]; width as usize * height as usize] }
    }

    /// Returns the pixels, row by row.
    pub fn pixels_mut(&mut self) -> &mut [[u8; 4]] {
        &mut self.pixels
    }

    /// Returns the picture rotated or mirrored as the Orientation tag says.
    pub fn upright(self, orientation: u16) -> Self {
        if !(2..=8).contains(&orientation) {
            return self;
        }
        let (width, height) = (self.width as usize, self.height as usize);
        let (new_width, new_height) = if orientation >= 5 { (height, width) } else { (width, height) };
        let pixel = |index: usize| {
            let (x, y) = (index % new_width.max(1), index / new_width.max(1));
            let (from_x, from_y) = stored_position(orientation, x, y, width, height);
            self.pixels.get(from_y * width + from_x).copied().unwrap_or_default()
        };
        let pixels = (0..new_width * new_height).map(pixel).collect();
        Self { width: new_width as u32, height: new_height as u32, gray: self.gray, pixels }
    }

    /// Writes a PNG file. It appears under its name when it is complete, and not at all when writing fails.
    pub fn write(&self, path: &Path) -> Result<()> {
        Ok(swath::io::write_file(path, |out| self.write_to(out))?)
    }

    fn write_to(&self, out: &mut dyn Write) -> io::Result<()> {
        let opaque = self.pixels.iter().all(|[.., alpha]| *alpha == 255);
        let (color, bytes): (_, Vec<u8>) = match (self.gray, opaque) {
            (true, true) => (png::ColorType::Grayscale, self.pixels.iter().map(|[gray, ..]| *gray).collect()),
            (true, false) => (
                png::ColorType::GrayscaleAlpha,
                self.pixels.iter().flat_map(|[gray, _, _, alpha]| [*gray, *alpha]).collect(),
            ),
            (false, true) => (png::ColorType::Rgb, self.pixels.iter().flat_map(|[r, g, b, _]| [*r, *g, *b]).collect()),
            (false, false) => (png::ColorType::Rgba, self.pixels.iter().flatten().copied().collect()),
        };
        let mut encoder = png::Encoder::new(out, self.width, self.height);
        encoder.set_color(color);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&bytes)?;
        Ok(writer.finish()?)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn picture() -> Picture {
        let mut picture = Picture::new(3, 2, false);
        picture.pixels_mut().iter_mut().zip(1..).for_each(|(pixel, value)| *pixel = [value, 0, 0, 255]);
        picture
    }

    fn reds(picture: &Picture) -> Vec<u8> {
        picture.pixels.iter().map(|pixel| pixel[0]).collect()
    }

    #[test]
    fn sideways_photos_are_turned_upright() {
        let turned = picture().upright(6);
        assert_eq!((turned.width, turned.height), (2, 3));
        assert_eq!(reds(&turned), [4, 1, 5, 2, 6, 3]);
        assert_eq!(reds(&picture().upright(3)), [6, 5, 4, 3, 2, 1]);
        assert_eq!(reds(&picture().upright(99)), [1, 2, 3, 4, 5, 6]);
    }

    #[test]
    fn a_failed_write_leaves_nothing_behind() {
        let folder = std::env::temp_dir().join(format!("swath-preview-{}", std::process::id()));
        fs::create_dir_all(folder.join("taken.png")).unwrap();
        // A folder has the name of the file, so that the last step fails.
        assert!(picture().write(&folder.join("taken.png")).is_err());
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 1);
        picture().write(&folder.join("free.png")).unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 2);
        fs::remove_dir_all(&folder).unwrap();
    }
}
