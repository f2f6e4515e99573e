//! Bounded lists of problems of a document, and texts short enough for a message.

/// Most problems that are listed, so that a hostile file cannot turn each of its nodes into a sentence.
const MAX_PROBLEMS: usize = 64;

/// Problems of a document, in a list of bounded length.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    list: Vec<String>,
    unlisted: usize,
}

impl Problems {
    /// Adds a problem; `text` is not called once the list is full.
    pub(crate) fn add(&mut self, text: impl FnOnce() -> String) {
        if self.list.len() < MAX_PROBLEMS {
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
    fn problems_are_bounded() {
        let mut problems = Problems::default();
        (0..10_000).for_each(|i| problems.add(|| i.to_string()));
        let problems = problems.finish();
        assert_eq!((problems.len(), problems.last().unwrap().as_str()), (MAX_PROBLEMS + 1, "and 9936 more"));
    }
}
