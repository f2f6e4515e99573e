//! The project's own checks, run as `cargo xtask <task>`.

mod api;
mod cubin;
mod deps;
mod features;
mod graph;
mod licences;
mod modules;
mod msrv;
mod ptx;
mod sbom;
mod suite;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

const USAGE: &str = "usage: cargo xtask <task>

  api        write the public names and signatures of the crate swath to crates/swath/api.txt; with --check, fail where
             they have changed; both fail where rustdoc warns, as of a broken link
  deps       fail on an arrow between workspace crates that the architecture does not draw, and on an import cycle between
             the modules of a crate
  features   fail where a crate does not pass the lints without features, with one of its own alone, or with all
  msrv       fail where the workspace does not compile with the toolchain of rust-version; skipped where it is missing
  licences   fail on a package whose licence or origin is not allowed
  sbom       write a bill of materials to target/sbom.cdx.json; with --check, fail where C sources are not listed in it
  test       build the tests of the workspace and run the test programs side by side
  ptx        compile the GPU kernels to crates/swath-cuda/kernels/ptx/ and assemble them for the chips in use to
             kernels/cubin/; with --check, fail where that would change them";

/// The root of the workspace.
fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap_or(Path::new(".")).to_path_buf()
}

fn main() -> ExitCode {
    let task = std::env::args().nth(1).unwrap_or_default();
    let option = std::env::args().nth(2).unwrap_or_default();
    if let ("ptx", "--unit", Some(name)) = (&*task, &*option, std::env::args().nth(3)) {
        return match ptx::print_unit(&name) {
            Ok(()) => ExitCode::SUCCESS,
            Err(faults) => {
                eprintln!("{}", faults.join("\n"));
                ExitCode::FAILURE
            }
        };
    }
    let outcome = match task.as_str() {
        "deps" => graph::load().and_then(|graph| {
            let crates = deps::check(&graph)?;
            Ok(format!("{crates}; {}", modules::check(&workspace())?))
        }),
        "api" if option.is_empty() => api::write(),
        "api" if option == "--check" => api::check(),
        "features" => features::check(),
        "msrv" => msrv::check(),
        "licences" => graph::load().and_then(|graph| licences::check(&graph)),
        "sbom" if option.is_empty() => graph::load().and_then(|graph| sbom::write(&graph)),
        "sbom" if option == "--check" => graph::load().and_then(|graph| sbom::check(&graph)),
        "test" => suite::run(),
        "ptx" if option.is_empty() => ptx::build(),
        "ptx" if option == "--check" => ptx::check(),
        _ => Err(vec![USAGE.to_owned()]),
    };
    match outcome {
        Ok(summary) => {
            println!("{task}: {summary}");
            ExitCode::SUCCESS
        }
        Err(faults) => {
            for fault in faults {
                eprintln!("{fault}");
            }
            ExitCode::FAILURE
        }
    }
}
