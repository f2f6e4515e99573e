//! `swath dump`: writes decoded samples to a file.

use std::{
    io::{self, Write},
    process::ExitCode,
};

use anyhow::{Context, Result};
use swath::{OpenOptions, Raster, SampleType, read::ColorView, statistics::samples::half_to_float};

use crate::{args::Dump, device, job, remote};

/// Runs `swath dump`.
pub fn run(args: &Dump) -> Result<ExitCode> {
    remote::check_local(&args.out)?;
    job::clear_up_on_interrupt();
    let color = if args.stored { ColorView::Stored } else { ColorView::Shown };
    let options = job::read_options(&args.selection)?.with_upright(args.upright).with_color(color);
    let open = job::on_device(OpenOptions::default().with_limits(job::limits(args.unlimited)), &args.device)?;
    let dataset = job::open_as(open, &args.file, &args.remote)?;
    let raster = if args.mask { dataset.read_mask(&options)? } else { dataset.read(&options)? };
    let npy = args.out.extension().is_some_and(|extension| extension == "npy");
    let samples = Samples::of(&raster)?;
    let header = if npy { npy_header(&raster) } else { Vec::new() };
    let written = swath::io::write_file(&args.out, |out| {
        out.write_all(&header)?;
        samples.write(out)
    });
    written.with_context(|| args.out.display().to_string())?;
    device::report(&args.device, [&dataset]);
    Ok(ExitCode::SUCCESS)
}

/// Samples in a type that NumPy has: complex integers and complex half floats become complex64, as in rasterio.
enum Samples<'a> {
    Plain(&'a [u8]),
    Short(&'a [[i16; 2]]),
    Long(&'a [[i32; 2]]),
    /// The bits of half floats, which have no type in stable Rust.
    Half(&'a [u8]),
}

impl<'a> Samples<'a> {
    fn of(raster: &'a Raster) -> Result<Self> {
        Ok(match raster.sample() {
            SampleType::CI16 => Self::Short(raster.samples()?),
            SampleType::CI32 => Self::Long(raster.samples()?),
            SampleType::CF16 => Self::Half(raster.bytes()),
            _ => Self::Plain(raster.bytes()),
        })
    }

    fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut put = |word: f32| out.write_all(&word.to_ne_bytes());
        match self {
            Self::Plain(bytes) => out.write_all(bytes),
            Self::Short(words) => words.as_flattened().iter().try_for_each(|word| put(f32::from(*word))),
            Self::Long(words) => words.as_flattened().iter().try_for_each(|word| put(*word as f32)),
            Self::Half(bytes) => {
                let words = bytes.as_chunks().0.iter().map(|raw| u16::from_ne_bytes(*raw));
                words.map(half_to_float).try_for_each(put)
            }
        }
    }
}

fn npy_header(raster: &Raster) -> Vec<u8> {
    let code = match raster.sample() {
        SampleType::U8 => "u1",
        SampleType::I8 => "i1",
        SampleType::U16 => "u2",
        SampleType::I16 => "i2",
        SampleType::U32 => "u4",
        SampleType::I32 => "i4",
        SampleType::U64 => "u8",
        SampleType::I64 => "i8",
        SampleType::F16 => "f2",
        SampleType::F32 => "f4",
        SampleType::F64 => "f8",
        SampleType::CF64 => "c16",
        _ => "c8",
    };
    let order = match (code.ends_with('1') && !code.starts_with('c'), cfg!(target_endian = "little")) {
        (true, _) => '|',
        (false, true) => '<',
        (false, false) => '>',
    };
    let [first, second, third] = raster.shape();
    let mut text =
        format!("{{'descr': '{order}{code}', 'fortran_order': False, 'shape': ({first}, {second}, {third}), }}");
    // In this format, the data start at a multiple of 64 bytes.
    const FIXED: usize = 10;
    let padding = (FIXED + text.len() + 1).next_multiple_of(64) - FIXED - text.len() - 1;
    text.extend(std::iter::repeat_n(' ', padding));
    text.push('\n');
    let mut header = b"\x93NUMPY\x01\x00".to_vec();
    header.extend((text.len() as u16).to_le_bytes());
    header.extend(text.as_bytes());
    header
}
