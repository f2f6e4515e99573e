//! A survey of this machine for `swath devices`: the driver, the devices and the libraries, or why they are missing.

use crate::{
    driver::{
        context::Context,
        cuda::{DeviceFacts, Driver},
        libraries::{
            cufile::{CuFile, Mode},
            load::{Absent, Search},
            nvcomp::Nvcomp,
            nvjpeg::decode::JpegDecoder,
            nvjpeg2k::decode::Jpeg2000Decoder,
        },
    },
    error::DeviceError,
    gpu::GpuOptions,
    kernel_code::KernelCode,
};

/// The driver, its devices, and the optional libraries.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Survey {
    /// The driver, or why there is none.
    pub driver: Result<DriverFacts, DeviceError>,
    /// Every device that the driver sees.
    pub devices: Vec<DeviceSurvey>,
    /// Every library that swath can use.
    pub libraries: Vec<LibrarySurvey>,
}

/// The driver.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DriverFacts {
    /// The newest CUDA version that the driver supports.
    pub version: String,
    /// The file that it was loaded from, or the name that the loader found it by.
    pub path: String,
}

/// One device.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DeviceSurvey {
    /// Name and properties of the device.
    pub facts: DeviceFacts,
    /// Free bytes of its memory, or why it cannot be used.
    pub free: Result<u64, DeviceError>,
    /// The form in which it gets kernels.
    pub kernels: KernelCode,
}

/// One library.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LibrarySurvey {
    /// Its name.
    pub name: &'static str,
    /// What swath uses it for.
    pub purpose: &'static str,
    /// Its version and file, or why it is not used.
    pub found: Result<LibraryFacts, String>,
}

/// A library that was found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct LibraryFacts {
    /// Its version.
    pub version: String,
    /// Its file.
    pub path: String,
    /// How it works on this machine, where that needs saying.
    pub note: Option<String>,
}

/// Looks for everything. Never fails: a missing part is reported in the survey.
pub fn survey(options: &GpuOptions) -> Survey {
    let search = Search { folders: options.libraries.clone() };
    let mut devices = Vec::new();
    let driver = Driver::load(options.driver.as_deref()).and_then(|driver| {
        let count = driver.devices()?;
        for ordinal in 0..count {
            let Ok(facts) = driver.facts(ordinal) else { continue };
            let free =
                Context::primary(driver.clone(), ordinal).and_then(|context| context.memory()).map(|(free, _)| free);
            let kernels = options.kernel_code(&facts);
            devices.push(DeviceSurvey { facts, free, kernels });
        }
        Ok(DriverFacts { version: driver.version(), path: driver.path().display().to_string() })
    });
    let usable = !devices.is_empty();
    let facts = |version: String, path: &std::path::Path, note: Option<String>| LibraryFacts {
        version,
        path: path.display().to_string(),
        note,
    };
    let why = |absent: Absent| absent.to_string();
    let libraries = vec![
        LibrarySurvey {
            name: "nvCOMP",
            purpose: "LZ4 of trusted files; writing Deflate and Zstd on request",
            found: Nvcomp::load(&search).map(|library| facts(library.version(), library.path(), None)).map_err(why),
        },
        LibrarySurvey {
            name: "nvJPEG",
            purpose: "JPEG",
            found: JpegDecoder::load(&search)
                .map(|library| facts(library.version(), library.path(), None))
                .map_err(why),
        },
        LibrarySurvey {
            name: "nvJPEG2000",
            purpose: "JPEG 2000",
            found: Jpeg2000Decoder::load(&search)
                .map(|library| facts(library.version(), library.path(), None))
                .map_err(why),
        },
        LibrarySurvey {
            name: "cuFile",
            purpose: "reads from storage straight to the GPU (GPUDirect)",
            found: CuFile::load(&search).map_err(why).map(|library| {
                // Without a driver, cuFile writes complaints to standard error.
                let note = usable.then(|| match CuFile::survey(&search) {
                    (Mode::Direct, detail) => format!("GPUDirect: {detail}"),
                    (Mode::Compatibility, detail) => format!("compatibility mode, not used: {detail}"),
                    (Mode::Absent, detail) => format!("not usable: {detail}"),
                });
                facts(library.version(), library.path(), note)
            }),
        },
    ];
    Survey { driver, devices, libraries }
}
