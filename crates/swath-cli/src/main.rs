//! The `swath` command.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod args;
mod cmd;
mod console;
mod device;
mod gdal;
mod job;
mod remote;
mod table;
mod traffic;

use std::{ffi::OsString, process::ExitCode};

use clap::Parser;

fn main() -> ExitCode {
    let args = match gdal::translate(std::env::args_os().collect()) {
        Ok(args) => args,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    let args = match args::Args::try_parse_from(&args) {
        Ok(args) => args,
        Err(error) => return refuse(&error, &args),
    };
    let liftable = args.command.takes_unlimited();
    match cmd::run(args.command) {
        Ok(code) => code,
        Err(error) => {
            // Chains are one line: what, then why. Names of files are strangers' text.
            let mut told = format!("{error:#}");
            if let Some(cause) = error.downcast_ref::<swath::Error>() {
                let advice = |field| match field {
                    "max_memory" => Some("or raise --max-memory".to_owned()),
                    _ => liftable.then(|| "give --unlimited to read it, if you trust the file".to_owned()),
                };
                told = told.replace(&cause.to_string(), &cause.told(advice));
            }
            eprintln!("error: {}", console::safe(&told));
            ExitCode::from(2)
        }
    }
}

/// Says what is wrong with the arguments, in clap's words, which quote them: addresses may hold secrets.
fn refuse(error: &clap::Error, args: &[OsString]) -> ExitCode {
    let told = error.to_string();
    let addresses = args.iter().filter_map(|arg| arg.to_str()).filter(|arg| arg.contains("://"));
    let shown = addresses.fold(told.clone(), |text, address| text.replace(address, &swath::remote::shown(address)));
    if shown == told {
        error.exit();
    }
    eprint!("{shown}");
    ExitCode::from(2)
}
