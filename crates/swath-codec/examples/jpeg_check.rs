//! Times the check of JPEG tiles beside their decoding, on one core.
//!
//! `cargo run --release -p swath-codec --example jpeg_check [RGB WIDTH HEIGHT]`: without arguments on a picture that is made up, else
//! on the raw interleaved bytes of one. Speeds are of decoded bytes.

use std::time::Instant;

use swath_codec::jpeg::{
    Checked, Color, Options, Tables,
    decode::{Scratch, check, decode},
    encode::{self, Encoder, Huffman, Settings},
};

const SIDE: usize = 512;

/// Hills of several sizes with a little noise, in three colours that go together.
fn made_up(width: usize, height: usize) -> Vec<u8> {
    let mut seed = 1_u32;
    let mut out = Vec::with_capacity(width * height * 3);
    for y in 0..height {
        for x in 0..width {
            let (fx, fy) = (x as f32, y as f32);
            let wave = |scale: f32, turn: f32| ((fx * turn.cos() + fy * turn.sin()) / scale).sin();
            let hills = wave(90.0, 0.3) * 40.0 + wave(23.0, 1.1) * 20.0 + wave(7.0, 2.0) * wave(31.0, 0.7) * 18.0;
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let noise = (seed >> 24) as f32 / 16.0 - 8.0;
            for tint in [0.9, 1.1, 0.7] {
                out.push((110.0 + hills * tint + noise).clamp(0.0, 255.0) as u8);
            }
        }
    }
    out
}

fn tiles(picture: &[u8], width: usize, height: usize) -> Vec<Vec<u8>> {
    let mut tiles = Vec::new();
    for top in (0..=height.saturating_sub(SIDE)).step_by(SIDE) {
        for left in (0..=width.saturating_sub(SIDE)).step_by(SIDE) {
            let rows = picture.chunks_exact(width * 3).skip(top).take(SIDE);
            tiles.push(rows.flat_map(|row| &row[left * 3..(left + SIDE) * 3]).copied().collect());
        }
    }
    tiles
}

/// The best of several rounds, in GB/s of decoded bytes.
fn best(bytes: usize, mut run: impl FnMut()) -> f64 {
    let rounds = (0..9).map(|_| {
        let start = Instant::now();
        run();
        start.elapsed().as_secs_f64()
    });
    bytes as f64 / rounds.fold(f64::MAX, f64::min) / 1e9
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (picture, width, height) = match arguments.as_slice() {
        [path, width, height] => (std::fs::read(path)?, width.parse()?, height.parse()?),
        _ => (made_up(4 * SIDE, 4 * SIDE), 4 * SIDE, 4 * SIDE),
    };
    let tiles = tiles(&picture, width, height);
    let bytes = tiles.len() * SIDE * SIDE * 3;
    println!("{} RGB tiles of {SIDE} x {SIDE}, 4:2:0, GB/s of pixels on one core", tiles.len());
    println!("quality  codes     bits/pixel  decode  check");
    for quality in [75, 85, 90] {
        for (name, huffman) in [("shared", Huffman::Standard), ("per tile", Huffman::PerTile)] {
            let settings = Settings {
                quality,
                subsampling: (2, 2),
                color: encode::Color::YCbCr,
                components: 3,
                precision: 8,
                huffman,
            };
            let encoder = Encoder::new(settings)?;
            let tables = Tables::parse(&encoder.tables())?;
            let mut streams = Vec::new();
            for tile in &tiles {
                let mut stream = Vec::new();
                encoder.encode(SIDE as u32, SIDE as u32, &tile[..], &mut stream, &mut encode::Scratch::default())?;
                streams.push(stream);
            }
            let options = Options { color: Color::YcbcrToRgb, max_pixels: 1 << 24 };
            let mut scratch = Scratch::default();
            let mut pixels = vec![0; SIDE * SIDE * 3];
            let decoding = best(bytes, || {
                for stream in &streams {
                    let done = decode(Some(&tables), stream, options, &mut pixels, SIDE * 3, &mut scratch);
                    assert!(done.is_ok_and(|decoded| decoded.damage.is_none()));
                }
            });
            let checking = best(bytes, || {
                for stream in &streams {
                    let found = check(Some(&tables), stream, options, &mut scratch);
                    assert!(matches!(found, Ok(Checked::Sound(_))));
                }
            });
            let bits = streams.iter().map(Vec::len).sum::<usize>() as f64 * 24.0 / bytes as f64;
            println!("{quality:7}  {name:8}  {bits:10.2}  {decoding:6.2}  {checking:5.2}");
        }
    }
    Ok(())
}
