//! The crate graph as `cargo metadata` reports it.

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::process::{Command, Stdio};

/// The result of a check: one line of summary, or every fault found.
pub type Outcome = Result<String, Vec<String>>;

/// One package of the resolved graph.
#[derive(Debug, Clone)]
pub struct Package {
    pub name: String,
    pub version: String,
    pub licence: Option<String>,
    /// `None` for a path inside the workspace.
    pub source: Option<String>,
    pub member: bool,
    /// Whether its build script runs a C compiler.
    pub builds_c: bool,
    /// Names of its dependencies, of every kind (normal, build, dev) and every target.
    pub dependencies: BTreeSet<String>,
}

/// The workspace's members and all that they reach.
#[derive(Debug, Clone, Default)]
pub struct Graph {
    pub packages: Vec<Package>,
}

/// The cargo that runs this task, without the variables that it sets for the task: build scripts that read them, such as ring's, would
/// run again, and all that depends on them would be compiled again.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Gets the graph from cargo, with every feature on: an optional dependency has a licence too.
pub fn load() -> Result<Graph, Vec<String>> {
    let value = metadata(&["--all-features"])?;
    parse(&value).ok_or_else(|| vec!["cargo metadata has no packages or no workspace_members".to_owned()])
}

/// What `cargo metadata` prints with these options.
pub fn metadata(options: &[&str]) -> Result<Value, Vec<String>> {
    let output = cargo()
        .args(["metadata", "--format-version", "1"])
        .args(options)
        .stderr(Stdio::inherit())
        .output()
        .map_err(|fault| vec![format!("cargo metadata did not start: {fault}")])?;
    if !output.status.success() {
        return Err(vec![format!("cargo metadata failed: {}", output.status)]);
    }
    serde_json::from_slice(&output.stdout).map_err(|fault| vec![format!("cargo metadata gave no JSON: {fault}")])
}

fn parse(value: &Value) -> Option<Graph> {
    let members: BTreeSet<&str> = value["workspace_members"].as_array()?.iter().filter_map(Value::as_str).collect();
    // The packages list also holds packages that no target or feature uses; the resolve graph lists those that are built.
    let resolved: Option<BTreeMap<&str, ()>> = value["resolve"]["nodes"]
        .as_array()
        .map(|nodes| nodes.iter().filter_map(|node| Some((node["id"].as_str()?, ()))).collect());
    let packages = value["packages"]
        .as_array()?
        .iter()
        .filter_map(|package| {
            let id = package["id"].as_str()?;
            if resolved.as_ref().is_some_and(|nodes| !nodes.contains_key(id)) {
                return None;
            }
            let text = |key: &str| package[key].as_str().map(str::to_owned);
            Some(Package {
                name: text("name")?,
                version: text("version")?,
                licence: text("license"),
                source: text("source"),
                member: members.contains(id),
                builds_c: package["dependencies"].as_array()?.iter().any(|dependency| {
                    dependency["name"] == "cc" && dependency["kind"] == "build" && dependency["optional"] != true
                }),
                dependencies: package["dependencies"]
                    .as_array()?
                    .iter()
                    .filter_map(|dependency| dependency["name"].as_str().map(str::to_owned))
                    .collect(),
            })
        })
        .collect();
    Some(Graph { packages })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_members_sources_and_dependencies_of_every_kind() {
        let value = serde_json::json!({
            "workspace_members": ["a 1"],
            "resolve": {"nodes": [{"id": "a 1"}, {"id": "b 1"}]},
            "packages": [
                {"id": "a 1", "name": "a", "version": "1.0.0", "license": "MIT", "source": null,
                 "dependencies": [{"name": "b", "kind": null}, {"name": "c", "kind": "dev"}]},
                {"id": "b 1", "name": "b", "version": "1.0.0", "license": null, "source": "registry+x", "dependencies": []},
                {"id": "z 1", "name": "unresolved", "version": "1.0.0", "license": null, "source": null, "dependencies": []},
            ],
        });
        let graph = parse(&value).unwrap_or_default();
        assert_eq!(graph.packages.len(), 2);
        assert!(graph.packages[0].member && !graph.packages[1].member);
        assert!(graph.packages[0].dependencies.contains("c"));
        assert_eq!(graph.packages[1].source.as_deref(), Some("registry+x"));
    }
}
