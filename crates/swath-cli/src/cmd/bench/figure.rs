//! What was measured: figures, the bounds beside them, and the machine.

use swath::gpu::CopySpeeds;

use super::{bound::Speed, measure::Times};

/// A kind of work, and how it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Work {
    /// Reading all samples.
    Read,
    /// Reading random windows with this many rows and columns.
    Windows(u32),
    /// Writing a GeoTIFF.
    WriteGeoTiff,
    /// Writing a COG.
    WriteCog,
}

impl Work {
    /// Returns its name in tables.
    pub fn name(self) -> String {
        match self {
            Self::Read => "read".to_owned(),
            Self::Windows(side) => format!("windows {side}²"),
            Self::WriteGeoTiff => "write GeoTIFF".to_owned(),
            Self::WriteCog => "write COG".to_owned(),
        }
    }

    /// Whether its figure is a number of windows.
    pub fn is_windows(self) -> bool {
        matches!(self, Self::Windows(_))
    }
}

/// The CPU or GPU that did the work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessorKind {
    /// The CPU, with this many threads.
    Cpu(usize),
    /// A GPU, by number and name.
    Gpu(i32, String),
}

impl ProcessorKind {
    /// Returns its name in tables.
    pub fn name(&self) -> String {
        match self {
            Self::Cpu(1) => "CPU, 1 thread".to_owned(),
            Self::Cpu(threads) => format!("CPU, {threads} threads"),
            Self::Gpu(ordinal, name) => format!("GPU {ordinal}, {name}"),
        }
    }
}

/// Something that bounds a figure.
#[derive(Debug, Clone, PartialEq)]
pub struct Bound {
    /// What limits it, in words.
    pub what: &'static str,
    /// Bytes of samples per second that it allows.
    pub rate: f64,
}

/// How the samples were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Checked {
    /// They were equal each time; for writes, equal to those that were written.
    Equal,
    /// They were equal each time, but are not those that were written: the codec is lossy.
    EqualButLossy,
}

/// A measurement that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct Timing {
    /// Bytes of samples of a run.
    pub bytes: u64,
    /// Windows of a run, for windows.
    pub windows: Option<u64>,
    /// Stored bytes: of the tiles that a run reads, or of the file that it writes.
    pub stored: u64,
    /// The runs.
    pub times: Times,
    /// Times of single windows, one after the other.
    pub latency: Option<Times>,
    /// Everything that bounds it.
    pub bounds: Vec<Bound>,
    /// How the samples were checked.
    pub checked: Checked,
}

impl Timing {
    /// Returns the lowest of the bounds.
    pub fn bound(&self) -> Option<&Bound> {
        self.bounds.iter().min_by(|a, b| a.rate.total_cmp(&b.rate))
    }

    /// Returns what is counted in a run: windows, or bytes of samples.
    pub fn amount(&self) -> f64 {
        self.windows.unwrap_or(self.bytes) as f64
    }

    /// Returns a rate in bytes as one in what is counted.
    pub fn counted(&self, bytes_per_second: f64) -> f64 {
        bytes_per_second * self.amount() / (self.bytes as f64).max(1.0)
    }

    /// Returns the best rate as a part of the lowest bound.
    pub fn part_of_bound(&self) -> Option<f64> {
        let best = self.bytes as f64 / self.times.best();
        self.bound().map(|bound| best / bound.rate.max(1e-9))
    }
}

/// One line of the table.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// The work.
    pub work: Work,
    /// The CPU or GPU that did it.
    pub processor: ProcessorKind,
    /// The measurement, or why there is none.
    pub outcome: Result<Timing, String>,
    /// Notices for the last column of the table.
    pub notes: Vec<String>,
}

/// A GPU that was measured.
#[derive(Debug, Clone)]
pub struct GpuSpeeds {
    /// Its number.
    pub ordinal: i32,
    /// Its name.
    pub name: String,
    /// How fast the machine copies to it and back.
    pub copies: CopySpeeds,
}

/// The machine, and what does not depend on a file.
#[derive(Debug, Clone)]
pub struct Machine {
    /// Name of the CPU.
    pub cpu: String,
    /// Threads that it was measured with.
    pub threads: usize,
    /// Speed of copies in memory.
    pub memory_copy: Vec<Speed>,
    /// The GPUs that were measured.
    pub gpus: Vec<GpuSpeeds>,
    /// Why others were not.
    pub no_gpu: Vec<String>,
}

/// The figures of a file.
#[derive(Debug, Clone)]
pub struct FileFigures {
    /// Its name, without secrets.
    pub name: String,
    /// Bytes of the file.
    pub size: u64,
    /// Columns, rows, bands.
    pub shape: (u32, u32, u32),
    /// Type of a sample.
    pub dtype: String,
    /// Compression as people write it, and as rasterio names it.
    pub compression: (String, Option<String>),
    /// Predictor, 1 to 3.
    pub predictor: u8,
    /// Columns and rows of a tile or strip.
    pub block: (u32, u32),
    /// Whether these are tiles.
    pub tiled: bool,
    /// Bytes of all samples.
    pub sample_bytes: u64,
    /// How fast the bytes of the file arrive in memory.
    pub file_read: Vec<Speed>,
    /// Whether it is behind a network.
    pub remote: bool,
    /// The figures.
    pub figures: Vec<Figure>,
}

#[cfg(test)]
pub mod examples {
    use super::*;

    /// Figures with every kind of line.
    pub fn file(name: &str) -> FileFigures {
        let timing = |windows: Option<u64>| Timing {
            bytes: 2_000_000,
            windows,
            stored: 500_000,
            times: Times(vec![0.01, 0.02, 0.03]),
            latency: windows.map(|_| Times(vec![0.001, 0.003])),
            bounds: vec![
                Bound { what: "memory copy", rate: 8e9 },
                Bound { what: "file × compression ratio", rate: 4e8 },
            ],
            checked: Checked::Equal,
        };
        let gpu = ProcessorKind::Gpu(0, "Test <GPU> & more".to_owned());
        let figure = |work, processor: &ProcessorKind, outcome| Figure {
            work,
            processor: processor.clone(),
            outcome,
            notes: Vec::new(),
        };
        let mut lossy = timing(None);
        lossy.checked = Checked::EqualButLossy;
        FileFigures {
            name: name.to_owned(),
            size: 600_000,
            shape: (1000, 1000, 1),
            dtype: "uint16".to_owned(),
            compression: ("Deflate".to_owned(), Some("deflate".to_owned())),
            predictor: 2,
            block: (512, 512),
            tiled: true,
            sample_bytes: 2_000_000,
            file_read: vec![Speed { threads: 1, best: 5e9, first: Some(1e9) }],
            remote: false,
            figures: vec![
                figure(Work::Read, &ProcessorKind::Cpu(1), Ok(timing(None))),
                figure(Work::Read, &gpu, Err("LZMA is not decoded on the GPU".to_owned())),
                figure(Work::Windows(256), &ProcessorKind::Cpu(4), Ok(timing(Some(16)))),
                figure(Work::WriteGeoTiff, &gpu, Ok(lossy)),
                Figure {
                    notes: vec!["the CPU compresses".to_owned()],
                    ..figure(Work::WriteCog, &gpu, Ok(timing(None)))
                },
            ],
        }
    }

    /// A machine with a GPU.
    pub fn machine() -> Machine {
        let mut copies = swath::gpu::CopySpeeds::default();
        (copies.to_device, copies.from_device) = (25e9, 20e9);
        Machine {
            cpu: "Test CPU".to_owned(),
            threads: 4,
            memory_copy: vec![Speed { threads: 1, best: 8e9, first: None }],
            gpus: vec![GpuSpeeds { ordinal: 0, name: "Test <GPU> & more".to_owned(), copies }],
            no_gpu: vec!["GPU 1: not usable".to_owned()],
        }
    }
}
