//! Runs the test programs of the workspace side by side. `cargo test` runs one after the other, and the longest use one core each.

use std::{
    collections::VecDeque,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    thread,
    time::Instant,
};

use serde_json::Value;

use crate::graph::{self, Outcome};

/// Programs that take longest. They start first, so that no core is idle at the end.
const LONGEST: [&str; 4] = ["gpu", "allocation", "pictures", "it"];

/// One test program.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Program {
    name: String,
    executable: PathBuf,
    /// The folder of its package, where `cargo test` would run it.
    folder: PathBuf,
}

/// Builds and runs every test program, then the examples in the documentation.
pub fn run() -> Outcome {
    let built = graph::cargo()
        .args(["test", "--release", "--workspace", "--no-run", "--message-format=json-render-diagnostics"])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|fault| vec![format!("cargo test did not start: {fault}")])?;
    if !built.status.success() {
        return Err(vec!["the tests do not compile".to_owned()]);
    }
    let programs = programs(&String::from_utf8_lossy(&built.stdout));
    if programs.is_empty() {
        return Err(vec!["cargo lists no test program".to_owned()]);
    }
    let count = programs.len();
    let mut faults = run_all(programs);
    let documentation = graph::cargo()
        .args(["test", "--release", "--workspace", "--doc", "--quiet"])
        .status()
        .map_err(|fault| vec![format!("cargo test did not start: {fault}")])?;
    if !documentation.success() {
        faults.push("examples in the documentation failed: cargo test --release --workspace --doc".to_owned());
    }
    if faults.is_empty() { Ok(format!("{count} programs and the documentation pass")) } else { Err(faults) }
}

/// The test programs in cargo's messages, the longest first.
fn programs(messages: &str) -> Vec<Program> {
    let parse = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
        let executable = message["executable"].as_str().filter(|_| is_test)?;
        let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
        Some(Program {
            name: message["target"]["name"].as_str()?.to_owned(),
            executable: executable.into(),
            folder: folder.into(),
        })
    };
    let mut programs: Vec<Program> = messages.lines().filter_map(parse).collect();
    let order = |program: &Program| LONGEST.iter().position(|name| *name == program.name).unwrap_or(LONGEST.len());
    programs.sort_by_key(order);
    programs
}

/// Runs the programs, as many at a time as there are cores. Prints a line for each, and the whole output of one that failed.
fn run_all(programs: Vec<Program>) -> Vec<String> {
    let queue = Mutex::new(VecDeque::from(programs));
    let faults = Mutex::new(Vec::new());
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(program) = next() {
                    if let Err(fault) = run_one(&program) {
                        faults.lock().unwrap_or_else(PoisonError::into_inner).push(fault);
                    }
                }
            });
        }
    });
    faults.into_inner().unwrap_or_else(PoisonError::into_inner)
}

fn run_one(program: &Program) -> Result<(), String> {
    let Program { name, executable, folder } = program;
    let began = Instant::now();
    let output = Command::new(executable)
        .arg("--quiet")
        .current_dir(folder)
        .env("CARGO_MANIFEST_DIR", folder)
        .output()
        .map_err(|fault| format!("{name}: {} did not start: {fault}", executable.display()))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let summary = text.lines().rev().find(|line| line.starts_with("test result:")).unwrap_or("no test result").trim();
    println!("{name}: {summary} ({:.1} s)", began.elapsed().as_secs_f64());
    if output.status.success() {
        return Ok(());
    }
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    Err(format!("{name} failed ({}): cd {} && {}", output.status, folder.display(), executable.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_programs_come_first_and_libraries_are_left_out() {
        let artifact = |name: &str, test: bool, executable: Value| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/a/b/Cargo.toml", "executable": executable,
                "target": {"name": name}, "profile": {"test": test},
            })
            .to_string()
        };
        let messages = [
            artifact("short", true, "/t/short".into()),
            artifact("library", false, Value::Null),
            artifact("command", false, "/t/command".into()),
            "no JSON".to_owned(),
            artifact("gpu", true, "/t/gpu".into()),
        ];
        let found = programs(&messages.join("\n"));
        assert_eq!(found.iter().map(|program| &*program.name).collect::<Vec<_>>(), ["gpu", "short"]);
        assert_eq!(found[0].folder, Path::new("/a/b"));
    }

    #[test]
    fn a_program_that_fails_is_reported() {
        let program =
            |executable: &str| Program { name: "one".to_owned(), executable: executable.into(), folder: "/".into() };
        assert_eq!(run_all(vec![program("/bin/true")]), Vec::<String>::new());
        assert_eq!(run_all(vec![program("/bin/false"), program("/bin/true"), program("/no/such")]).len(), 2);
    }
}
