//! Describes the GPUs, what they can do, or why they cannot be used, as JSON.

use serde_json::{Value, json};
use swath_cuda::probe::Survey;

/// Describes the result of [`survey`](swath_cuda::probe::survey): what `swath devices --json` prints.
/// <https://swath-raster.github.io/swath/cli-json.html> lists its keys.
pub fn devices(found: &Survey) -> Value {
    let driver = match &found.driver {
        Ok(driver) => json!({ "found": true, "cuda": driver.version, "path": driver.path }),
        Err(error) => json!({ "found": false, "reason": error.to_string() }),
    };
    let devices = found.devices.iter().map(|device| {
        let facts = &device.facts;
        let (major, minor) = facts.capability;
        json!({
            "ordinal": facts.ordinal,
            "name": facts.name,
            "bus": facts.bus,
            "compute_capability": format!("{major}.{minor}"),
            "multiprocessors": facts.multiprocessors,
            "memory": facts.memory,
            "free": device.free.as_ref().ok(),
            "usable": device.free.is_ok(),
            "kernels": device.free.is_ok().then(|| device.kernels.to_string()),
            "reason": device.free.as_ref().err().map(ToString::to_string),
        })
    });
    let libraries = found.libraries.iter().map(|library| match &library.found {
        Ok(facts) => json!({
            "name": library.name,
            "purpose": library.purpose,
            "found": true,
            "version": facts.version,
            "path": facts.path,
            "note": facts.note,
        }),
        Err(reason) => {
            json!({ "name": library.name, "purpose": library.purpose, "found": false, "reason": reason })
        }
    });
    json!({ "driver": driver, "devices": devices.collect::<Value>(), "libraries": libraries.collect::<Value>() })
}
