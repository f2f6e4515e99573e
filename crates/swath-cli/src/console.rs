//! Output on the terminal: text that is safe to show, and a progress line.

use std::{
    io::{self, BufWriter, IsTerminal, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};

/// Writes to standard output. A closed pipe (`swath info … | head`) is not an error.
pub fn print(text: &str) -> Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("cannot write to standard output"),
    }
}

/// Writes to standard error. A closed or full one changes neither the work nor the exit status.
pub fn report(text: &str) {
    let _ = io::stderr().write_all(text.as_bytes());
}

/// Writes indented JSON and a line feed to standard output.
pub fn print_json(value: &serde_json::Value) -> Result<()> {
    print(&format!("{value:#}\n"))
}

/// Returns text from a file with control characters escaped: a terminal must not obey what a stranger wrote into a tag.
pub fn safe(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for char in text.chars() {
        // Direction marks reorder the text around them, which can hide it as control characters can.
        let hides = char.is_control() || matches!(char, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
        if hides { safe.extend(char.escape_default()) } else { safe.push(char) }
    }
    safe
}

/// Returns at most `len` characters of a text, safe to show.
pub fn short(text: &str, len: usize) -> String {
    let mut chars = text.chars();
    let head: String = chars.by_ref().take(len).collect();
    let rest = chars.count();
    if rest == 0 { safe(&head) } else { format!("{}… ({rest} more characters)", safe(&head)) }
}

/// Returns a size in bytes with a readable unit.
pub fn bytes(len: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    let mut size = len as f64;
    let mut unit = "bytes";
    for next in UNITS {
        if size < 1024.0 {
            break;
        }
        size /= 1024.0;
        unit = next;
    }
    if unit == "bytes" { format!("{len} bytes") } else { format!("{size:.1} {unit} ({len} bytes)") }
}

/// A progress line on standard error, where that is a terminal.
pub struct Progress {
    label: String,
    total: u64,
    done: u64,
    started: Instant,
    shown: Option<Instant>,
    terminal: bool,
}

impl Progress {
    /// Starts work of `total` steps.
    pub fn new(label: impl Into<String>, total: u64) -> Self {
        Self {
            label: label.into(),
            total: total.max(1),
            done: 0,
            started: Instant::now(),
            shown: None,
            terminal: io::stderr().is_terminal(),
        }
    }

    /// Reports `steps` more steps.
    pub fn add(&mut self, steps: u64) {
        self.reach(self.done.saturating_add(steps));
    }

    /// Reports that `done` steps are done in total.
    pub fn reach(&mut self, done: u64) {
        self.done = done;
        // Short work shows nothing: a line that only flashes is a distraction.
        if !self.terminal || self.started.elapsed() < Duration::from_millis(700) {
            return;
        }
        if self.shown.is_none_or(|shown| shown.elapsed() > Duration::from_millis(100)) {
            let percent = self.done as f64 / self.total as f64 * 100.0;
            let _ = write!(io::stderr(), "\r\x1b[K{} {percent:.0} %", self.label);
            self.shown = Some(Instant::now());
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}

/// A line on standard error about the work at hand, where that is a terminal.
pub struct Status {
    terminal: bool,
}

impl Status {
    /// Shows nothing yet.
    pub fn new() -> Self {
        Self { terminal: io::stderr().is_terminal() }
    }

    /// Replaces the line.
    pub fn show(&self, text: &str) {
        if self.terminal {
            let _ = write!(io::stderr(), "\r\x1b[K{}", safe(text));
        }
    }
}

impl Drop for Status {
    fn drop(&mut self) {
        self.show("");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_from_a_file_do_not_reach_the_terminal() {
        assert_eq!(safe("a\x1b[31mb\nü"), "a\\u{1b}[31mb\\nü");
    }

    #[test]
    fn long_text_is_cut_between_characters() {
        assert_eq!(short("äöü", 2), "äö… (1 more characters)");
        assert_eq!(short("äöü", 3), "äöü");
    }

    #[test]
    fn sizes_have_a_unit_that_suits() {
        assert_eq!(bytes(12), "12 bytes");
        assert_eq!(bytes(1536), "1.5 KiB (1536 bytes)");
    }
}
