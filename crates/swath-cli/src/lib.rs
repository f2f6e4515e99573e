//! The `swath` command as a library, so that the fuzzer can reach its options.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod cmd;
mod console;
mod device;
mod gdal;
mod job;
mod numbers;
mod reference;
mod remote;
mod table;
mod traffic;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;
use swath::{ConvertOptions, Dataset, WriteOptions};

/// Runs the command line `args`, which begins with the program's name, and returns its exit status.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let args = match gdal::translate(args) {
        Ok(args) => args,
        Err(error) => {
            console::report(&format!("error: {error:#}\n"));
            return ExitCode::from(2);
        }
    };
    let args = match args::Args::try_parse_from(&args) {
        Ok(args) => args,
        Err(error) => return report_usage(&error, &args),
    };
    let takes_unlimited = args.command.takes_unlimited();
    match cmd::run(args.command) {
        Ok(code) => code,
        Err(error) => {
            let advice = |field| match field {
                "max_memory" => Some("or raise --max-memory".to_owned()),
                _ => takes_unlimited.then(|| "give --unlimited to read it, if you trust the file".to_owned()),
            };
            // File names may hold control characters.
            console::report(&format!("error: {}\n", console::safe(&chain(&error, &advice))));
            ExitCode::from(2)
        }
    }
}

/// Joins an error and its causes into one line. A cause that its error has quoted already is left out; the engine's
/// message includes its own causes.
fn chain(error: &anyhow::Error, advice: &dyn Fn(&'static str) -> Option<String>) -> String {
    let mut line = String::new();
    for cause in error.chain() {
        let engine = cause.downcast_ref::<swath::Error>();
        let text = engine.map_or_else(|| cause.to_string(), |cause| cause.message_with(advice));
        if line.is_empty() {
            line = text;
        } else if !line.ends_with(&text) {
            line = format!("{line}: {text}");
        }
        if engine.is_some() {
            break;
        }
    }
    line
}

/// Reports wrong arguments by clap's message, which quotes them, without the secrets that addresses may hold.
fn report_usage(error: &clap::Error, args: &[OsString]) -> ExitCode {
    let message = error.to_string();
    let addresses = args.iter().filter_map(|arg| arg.to_str()).filter(|arg| arg.contains("://"));
    let shown =
        addresses.fold(message.clone(), |text, address| text.replace(address, &swath::io::remote::shown(address)));
    if shown == message {
        error.exit();
    }
    console::report(&shown);
    ExitCode::from(2)
}

/// Returns the options that a `swath convert` command line gives for an open file, or `None` where it is refused.
/// Writes nothing. For the fuzzer.
#[doc(hidden)]
pub fn conversion(args: Vec<OsString>, dataset: &Dataset) -> Option<(ConvertOptions, WriteOptions)> {
    let args = args::Args::try_parse_from(gdal::translate(args).ok()?).ok()?;
    let args::Command::Convert(convert) = args.command else { return None };
    cmd::convert::options(&convert, dataset).ok()
}
