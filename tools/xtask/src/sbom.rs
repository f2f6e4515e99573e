//! A bill of materials (CycloneDX 1.6): every package that the lock file resolves to, and the C libraries inside them.

use serde_json::{Value, json};

use crate::graph::{Graph, Outcome, Package};

/// The path of the document.
const PATH: &str = "target/sbom.cdx.json";

/// C libraries whose sources come inside a package: the package, the library, its version and its licence. SECURITY.md
/// has their advisories; ring's parts of BoringSSL have ring's version.
const BUNDLED: &[(&str, &str, &str, &str)] = &[
    ("libdeflate-sys", "libdeflate", "1.26", "MIT"),
    ("liblzma-sys", "xz", "5.8.4", "0BSD"),
    ("libwebp-sys", "libwebp", "1.6.0", "BSD-3-Clause"),
    ("openjpeg-sys", "openjpeg", "2.5.3", "BSD-2-Clause"),
    ("ring", "boringssl", "0.17.14", "ISC"),
    ("zstd-sys", "zstd", "1.5.7", "BSD-3-Clause"),
];

/// Packages with C sources that no release holds: the fuzzer's runtime, and one of another operating system.
const NOT_SHIPPED: &[&str] = &["libfuzzer-sys", "iana-time-zone-haiku"];

/// Writes the document.
pub fn write(graph: &Graph) -> Outcome {
    let document = document(graph)?;
    let count = document["components"].as_array().map_or(0, Vec::len);
    let text = serde_json::to_string_pretty(&document).map_err(|fault| vec![fault.to_string()])?;
    std::fs::create_dir_all("target")
        .and_then(|()| std::fs::write(PATH, text + "\n"))
        .map_err(|fault| vec![format!("{PATH}: {fault}")])?;
    Ok(format!("{count} components in {PATH}"))
}

/// Checks that every bundled library is still there, so that the table above stays true when a package is updated.
pub fn check(graph: &Graph) -> Outcome {
    document(graph).map(|_| format!("{} bundled C libraries, all listed", BUNDLED.len()))
}

fn document(graph: &Graph) -> Result<Value, Vec<String>> {
    let mut components: Vec<Value> = graph.packages.iter().filter(|package| !package.member).map(component).collect();
    let mut faults = Vec::new();
    for (package, library, version, licence) in BUNDLED {
        let Some(holder) = graph.packages.iter().find(|found| found.name == *package) else {
            faults.push(format!("{package} is not in the graph any more: take {library} out of the bill of materials"));
            continue;
        };
        components.push(json!({
            "type": "library",
            "name": library,
            "version": version,
            "licenses": [{"license": {"id": licence}}],
            "purl": format!("pkg:generic/{library}@{version}"),
            "properties": [{"name": "swath:bundled-in", "value": format!("{} {}", holder.name, holder.version)}],
        }));
    }
    for package in graph.packages.iter().filter(|package| package.builds_c) {
        let listed = BUNDLED.iter().any(|(name, ..)| *name == package.name);
        if !listed && !NOT_SHIPPED.contains(&&*package.name) {
            faults.push(format!(
                "{} {} builds C sources and is not in tools/xtask/src/sbom.rs",
                package.name, package.version
            ));
        }
    }
    if !faults.is_empty() {
        return Err(faults);
    }
    let own = graph.packages.iter().find(|package| package.name == "swath-cli");
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {
            "type": "application",
            "name": "swath",
            "version": own.map_or("", |package| &package.version),
        }},
        "components": components,
    }))
}

fn component(package: &Package) -> Value {
    json!({
        "type": "library",
        "name": package.name,
        "version": package.version,
        "licenses": [{"expression": package.licence.as_deref().unwrap_or("NOASSERTION").replace('/', " OR ")}],
        "purl": format!("pkg:cargo/{}@{}", package.name, package.version),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, builds_c: bool) -> Package {
        Package {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            licence: Some("MIT/Apache-2.0".to_owned()),
            source: Some("registry".to_owned()),
            member: false,
            builds_c,
            dependencies: Default::default(),
        }
    }

    fn whole() -> Graph {
        Graph { packages: BUNDLED.iter().map(|(name, ..)| package(name, true)).collect() }
    }

    #[test]
    fn lists_packages_and_what_is_bundled_in_them() {
        let document = document(&whole()).unwrap_or_default();
        let components = document["components"].as_array().cloned().unwrap_or_default();
        assert_eq!(components.len(), 2 * BUNDLED.len());
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(components.iter().any(|component| component["purl"] == "pkg:generic/zstd@1.5.7"));
    }

    #[test]
    fn refuses_c_sources_that_are_not_listed_and_lists_that_are_stale() {
        let mut graph = whole();
        graph.packages.push(package("other-sys", true));
        assert!(document(&graph).is_err_and(|faults| faults[0].contains("other-sys")));
        graph.packages.clear();
        assert!(document(&graph).is_err_and(|faults| faults.len() == BUNDLED.len()));
    }
}
