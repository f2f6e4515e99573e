//! Bounded lists of remarks, and texts short enough for a message.

/// Most remarks that are listed, so that a hostile file cannot turn each of its nodes into a sentence.
const MAX_NOTES: usize = 64;

/// Remarks about a document, in a list of bounded length.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    list: Vec<String>,
    unlisted: usize,
}

impl Notes {
    /// Adds a remark; `text` is not called once the list is full.
    pub(crate) fn add(&mut self, text: impl FnOnce() -> String) {
        if self.list.len() < MAX_NOTES {
            self.list.push(text());
        } else {
            self.unlisted += 1;
        }
    }

    #[cfg(test)]
    pub(crate) fn list(&self) -> &[String] {
        &self.list
    }

    pub(crate) fn finish(mut self) -> Vec<String> {
        if self.unlisted > 0 {
            self.list.push(format!("and {} more", self.unlisted));
        }
        self.list
    }
}

/// Shortens a text for a message and replaces its control characters by spaces.
pub(crate) fn shorten(text: &str) -> String {
    const LEN: usize = 60;
    let mut short: String = text.chars().take(LEN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(LEN).is_some() {
        short.push('…');
    }
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_bounded() {
        let mut notes = Notes::default();
        (0..10_000).for_each(|i| notes.add(|| i.to_string()));
        let notes = notes.finish();
        assert_eq!((notes.len(), notes.last().unwrap().as_str()), (MAX_NOTES + 1, "and 9936 more"));
    }
}
