//! The `swath` command.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod cmd;
mod console;
mod device;
mod gdal;
mod job;
mod table;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = match gdal::translate(std::env::args_os().collect()) {
        Ok(args) => args::Args::parse_from(args),
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    match cmd::run(args.command) {
        Ok(code) => code,
        Err(error) => {
            // Chains are one line: what, then why. Names of files are strangers' text.
            eprintln!("error: {}", console::safe(&format!("{error:#}")));
            ExitCode::from(2)
        }
    }
}
