//! Options for servers and stores, as `_storage_options.py` passes them.

use std::time::Duration;

use pyo3::{exceptions::PyException, prelude::*, types::PyDict};
use swath::io::RemoteOptions;

use crate::{errors, options::text};

/// Reads a dictionary of the options that `_swath.pyi` lists. An error names the option but not its value, which may be a secret.
pub fn options(given: &Bound<'_, PyDict>) -> PyResult<RemoteOptions> {
    let mut options = RemoteOptions::default();
    for (key, value) in given.iter() {
        let key = text(&key)?;
        options = option(options, &key, &value).map_err(|error| {
            if !error.is_instance_of::<PyException>(given.py()) {
                return error;
            }
            errors::usage(
                given.py(),
                &format!("storage_options: {key} has a value of the wrong type, or is not an option"),
            )
        })?;
    }
    Ok(options)
}

fn option(options: RemoteOptions, key: &str, value: &Bound<'_, PyAny>) -> PyResult<RemoteOptions> {
    let pairs = || value.extract::<Vec<(String, String)>>();
    Ok(match key {
        "anonymous" => options.with_anonymous(value.extract()?),
        "endpoint" => options.with_endpoint(value.extract::<String>()?),
        "region" => options.with_region(value.extract::<String>()?),
        "headers" => pairs()?.into_iter().fold(options, |options, (name, value)| options.with_header(name, value)),
        "settings" => pairs()?.into_iter().fold(options, |options, (name, value)| options.with_setting(name, value)),
        "max_bytes" => options.with_max_bytes(value.extract()?),
        "max_requests" => options.with_max_requests(value.extract()?),
        "deadline" => options.with_deadline(seconds(value)?),
        "connect_timeout" => options.with_connect_timeout(seconds(value)?),
        "stall_timeout" => options.with_stall_timeout(seconds(value)?),
        "retries" => options.with_retries(value.extract()?),
        "redirects" => options.with_redirects(value.extract()?),
        "in_flight" => options.with_in_flight(value.extract()?),
        "public_only" => options.with_public_only(value.extract()?),
        "allowed_hosts" => options.with_allowed_hosts(value.extract()?),
        _ => return Err(errors::usage(value.py(), "there is no such option")),
    })
}

fn seconds(value: &Bound<'_, PyAny>) -> PyResult<Duration> {
    let seconds = value.extract()?;
    Duration::try_from_secs_f64(seconds).map_err(|_| errors::usage(value.py(), "this is not a number of seconds"))
}

/// Whether a name is an address that the engine's own client reads and writes.
#[pyfunction]
pub fn is_remote(location: &str) -> bool {
    swath::io::remote::is_remote(location)
}

/// Returns an address as messages show it: without user, password, query and fragment.
#[pyfunction]
pub fn shown(location: &str) -> String {
    swath::io::remote::shown(location)
}
