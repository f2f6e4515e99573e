//! Lists of messages that a hostile file cannot make long.

use std::collections::BTreeMap;

/// Most messages of a list that are kept.
const MAX_MESSAGES: usize = 2048;
/// Most blocks of one directory with the same fault that are reported one by one.
const MAX_BLOCKS: u64 = 10;

/// What can be wrong with a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fault {
    Order,
    Leader,
    Trailer,
    Mask,
    End,
    Overlap,
}

impl Fault {
    fn words(self) -> &'static str {
        match self {
            Self::Order => "are out of order",
            Self::Leader => "have wrong leader bytes",
            Self::Trailer => "have wrong trailer bytes",
            Self::Mask => "have their mask elsewhere",
            Self::End => "lie beyond the end of the file",
            Self::Overlap => "overlap something",
        }
    }
}

/// Errors and warnings.
#[derive(Debug, Default)]
pub(super) struct Findings {
    errors: List,
    warnings: List,
    blocks: BTreeMap<(String, Fault), u64>,
}

#[derive(Debug, Default)]
struct List {
    messages: Vec<String>,
    more: u64,
}

impl List {
    fn push(&mut self, message: String) {
        if self.messages.len() < MAX_MESSAGES {
            self.messages.push(message);
        } else {
            self.more += 1;
        }
    }

    fn finish(mut self) -> Vec<String> {
        if self.more > 0 {
            self.messages.push(format!("… and {} more", self.more));
        }
        self.messages
    }
}

impl Findings {
    pub(super) fn error(&mut self, message: impl Into<String>) {
        self.errors.push(message.into());
    }

    pub(super) fn warning(&mut self, message: impl Into<String>) {
        self.warnings.push(message.into());
    }

    /// Adds an error of one block of a directory; builds the message only if it is kept.
    pub(super) fn block(&mut self, directory: &str, fault: Fault, message: impl FnOnce() -> String) {
        // A directory is named once for all its blocks; looking up by a borrowed name would need a second map.
        let seen = self.blocks.entry((directory.to_owned(), fault)).or_default();
        *seen += 1;
        if *seen <= MAX_BLOCKS {
            self.errors.push(message());
        }
    }

    /// Returns errors and warnings, each list with a last message that counts the others.
    pub(super) fn into_lists(mut self) -> (Vec<String>, Vec<String>) {
        for ((directory, fault), seen) in &self.blocks {
            if *seen > MAX_BLOCKS {
                self.errors.push(format!("{directory}: {} more blocks {}", seen - MAX_BLOCKS, fault.words()));
            }
        }
        (self.errors.finish(), self.warnings.finish())
    }
}
