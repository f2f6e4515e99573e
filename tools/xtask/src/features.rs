//! Features: each crate that has some must pass the lints with none, with each alone, and with all.
//!
//! A feature that only turns on features of other workspace crates has no code of its own: the crates that it leads to are checked
//! with it. Where the defaults are all features, the lints of the workspace have checked them. So few combinations are left, and each
//! checks workspace crates only, since the dependencies were compiled for the tests.

use std::process::Command;

use serde_json::{Map, Value};

use crate::graph::{self, Outcome};

/// One run of the lints.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Combination {
    package: String,
    /// `None` for all features.
    features: Option<Vec<String>>,
}

impl Combination {
    fn arguments(&self) -> Vec<String> {
        let mut arguments: Vec<String> =
            ["clippy", "--release", "--quiet", "-p", &self.package].map(str::to_owned).into();
        match &self.features {
            None => arguments.push("--all-features".to_owned()),
            Some(features) => {
                arguments.push("--no-default-features".to_owned());
                arguments.extend(features.iter().flat_map(|feature| ["--features".to_owned(), feature.clone()]));
            }
        }
        arguments.extend(["--", "-D", "warnings"].map(str::to_owned));
        arguments
    }

    fn name(&self) -> String {
        match &self.features {
            None => format!("{} with all features", self.package),
            Some(features) if features.is_empty() => format!("{} without features", self.package),
            Some(features) => format!("{} with {} alone", self.package, features.join(" and ")),
        }
    }
}

/// Lints every combination.
pub fn check() -> Outcome {
    let all = combinations(&graph::metadata(&["--no-deps"])?);
    if all.is_empty() {
        return Err(vec!["cargo metadata lists no workspace crate with features".to_owned()]);
    }
    let mut faults = Vec::new();
    for combination in &all {
        let status = Command::new(graph::cargo())
            .args(combination.arguments())
            .status()
            .map_err(|fault| vec![format!("cargo clippy did not start: {fault}")])?;
        if !status.success() {
            faults.push(format!("{} does not pass: cargo {}", combination.name(), combination.arguments().join(" ")));
        }
    }
    if faults.is_empty() { Ok(format!("{} combinations pass the lints", all.len())) } else { Err(faults) }
}

/// The combinations to check of the crates under `crates/`.
fn combinations(metadata: &Value) -> Vec<Combination> {
    let packages = metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut found = Vec::new();
    for package in packages {
        let in_crates = package["manifest_path"].as_str().is_some_and(|path| path.contains("/crates/"));
        let (Some(name), Some(features)) = (package["name"].as_str(), package["features"].as_object()) else {
            continue;
        };
        if !in_crates || features.is_empty() {
            continue;
        }
        let one = |features| Combination { package: name.to_owned(), features };
        found.push(one(Some(Vec::new())));
        let own = features.iter().filter(|(feature, leads_to)| *feature != "default" && !is_passed_on(leads_to));
        found.extend(own.map(|(feature, _)| one(Some(vec![feature.clone()]))));
        if features.keys().any(|feature| feature != "default" && !is_default(features, feature)) {
            found.push(one(None));
        }
    }
    found
}

/// Whether a feature is on by default.
fn is_default(features: &Map<String, Value>, feature: &str) -> bool {
    let defaults = features.get("default").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    defaults.iter().any(|named| named == feature)
}

/// Whether a feature only turns on features of other crates.
fn is_passed_on(leads_to: &Value) -> bool {
    let leads_to = leads_to.as_array().map(Vec::as_slice).unwrap_or_default();
    !leads_to.is_empty() && leads_to.iter().all(|entry| entry.as_str().is_some_and(|entry| entry.contains('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_with_code_are_checked_alone_and_those_passed_on_are_not() {
        let metadata = serde_json::json!({"packages": [
            {"name": "swath-codec", "manifest_path": "/a/crates/swath-codec/Cargo.toml",
             "features": {"default": ["lz4"], "lz4": ["dep:lz4_flex"], "conformance": []}},
            {"name": "swath", "manifest_path": "/a/crates/swath/Cargo.toml",
             "features": {"lz4": ["swath-codec/lz4"], "ndarray": ["dep:ndarray"]}},
            {"name": "swath-cli", "manifest_path": "/a/crates/swath-cli/Cargo.toml",
             "features": {"default": ["swath/default", "lz4"], "lz4": ["swath/lz4"]}},
            {"name": "swath-crs", "manifest_path": "/a/crates/swath-crs/Cargo.toml", "features": {}},
            {"name": "swath-fuzz", "manifest_path": "/a/fuzz/Cargo.toml", "features": {"libfuzzer": []}},
        ]});
        let names: Vec<String> = combinations(&metadata).iter().map(Combination::name).collect();
        let expected = [
            "swath-codec without features",
            "swath-codec with conformance alone",
            "swath-codec with lz4 alone",
            "swath-codec with all features",
            "swath without features",
            "swath with ndarray alone",
            "swath with all features",
            "swath-cli without features",
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn a_single_feature_is_asked_for_without_the_defaults() {
        let one = Combination { package: "a".to_owned(), features: Some(vec!["b".to_owned()]) };
        let arguments = one.arguments().join(" ");
        assert_eq!(arguments, "clippy --release --quiet -p a --no-default-features --features b -- -D warnings");
    }
}
