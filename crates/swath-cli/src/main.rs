//! The program `swath`; everything it does is in the library beside it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    swath_cli::run(std::env::args_os().collect())
}
