//! WKT as a tree, which can be parsed, taken apart and written again on one line or several.
//!
//! Keywords are not interpreted here, so one tree serves WKT1 (Esri strings in citations) and WKT2.

use std::fmt::{self, Write as _};

/// Deepest nesting accepted, which bounds recursion on hostile text. EPSG's deepest definition has 8 levels.
const MAX_DEPTH: usize = 32;

/// Why a text is not WKT.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WktError {
    /// The text stops inside a node or a quoted string.
    #[error("WKT ends inside {0}")]
    Truncated(String),
    /// A character that does not belong there.
    #[error("WKT has an unexpected {found:?} at byte {offset}")]
    Unexpected {
        /// The character.
        found: char,
        /// Its byte offset in the text.
        offset: usize,
    },
    /// Nested deeper than any real definition.
    #[error("WKT is nested more than {MAX_DEPTH} deep")]
    TooDeep,
}

/// One item between the brackets of a node.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Item {
    /// A child node.
    Node(Node),
    /// A quoted string, unescaped.
    Text(String),
    /// A bare word: a number or an enumeration such as `north`. Kept as written, so that numbers survive unchanged.
    Word(String),
}

/// `KEYWORD[item, item, …]`.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// The keyword, in the case it was written.
    pub keyword: String,
    /// The items between the brackets.
    pub items: Vec<Item>,
}

impl Node {
    /// A node without items.
    #[must_use]
    pub fn new(keyword: &str) -> Self {
        Self { keyword: keyword.to_owned(), items: Vec::new() }
    }

    /// A node whose first item is its name.
    #[must_use]
    pub fn named(keyword: &str, name: &str) -> Self {
        Self::new(keyword).text(name)
    }

    /// Appends a quoted string.
    #[must_use]
    pub fn text(mut self, text: &str) -> Self {
        self.items.push(Item::Text(text.to_owned()));
        self
    }

    /// Appends a bare word.
    #[must_use]
    pub fn word(mut self, word: &str) -> Self {
        self.items.push(Item::Word(word.to_owned()));
        self
    }

    /// Appends a number, in the fewest digits that parse back to the same double.
    #[must_use]
    pub fn number(self, value: f64) -> Self {
        let word = number(value);
        self.word(&word)
    }

    /// Appends a node.
    #[must_use]
    pub fn with(mut self, node: Node) -> Self {
        self.items.push(Item::Node(node));
        self
    }

    /// Appends a node if there is one.
    #[must_use]
    pub fn with_some(self, node: Option<Node>) -> Self {
        match node {
            Some(node) => self.with(node),
            None => self,
        }
    }

    /// Appends several nodes.
    #[must_use]
    pub fn with_all(mut self, nodes: impl IntoIterator<Item = Node>) -> Self {
        self.items.extend(nodes.into_iter().map(Item::Node));
        self
    }

    /// Appends `ID["EPSG",code]`.
    #[must_use]
    pub fn with_epsg(self, code: u32) -> Self {
        self.with(Node::named("ID", "EPSG").word(&code.to_string()))
    }

    /// Whether the keyword is `keyword`, in any case.
    #[must_use]
    pub fn is(&self, keyword: &str) -> bool {
        self.keyword.eq_ignore_ascii_case(keyword)
    }

    /// The first quoted string: the name.
    #[must_use]
    pub fn name(&self) -> Option<&str> {
        self.items.iter().find_map(|i| match i {
            Item::Text(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The `n`-th bare word that is a number.
    #[must_use]
    pub fn nth_number(&self, n: usize) -> Option<f64> {
        let numbers = self.items.iter().filter_map(|i| match i {
            Item::Word(word) => word.parse::<f64>().ok(),
            _ => None,
        });
        numbers.into_iter().nth(n)
    }

    /// The child nodes.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.items.iter().filter_map(|i| match i {
            Item::Node(node) => Some(node),
            _ => None,
        })
    }

    /// The first child whose keyword is one of `keywords`.
    #[must_use]
    pub fn child(&self, keywords: &[&str]) -> Option<&Node> {
        self.nodes().find(|n| keywords.iter().any(|k| n.is(k)))
    }

    /// The EPSG code of this node itself, not of its children, as WKT2 states it (`ID["EPSG",4326]`).
    #[must_use]
    pub fn epsg(&self) -> Option<u32> {
        self.nodes().filter(|n| n.is("ID") && n.name() == Some("EPSG")).find_map(|n| {
            let code = n.nth_number(0)?;
            (code >= 0.0 && code <= f64::from(u32::MAX) && code.fract() == 0.0).then_some(code as u32)
        })
    }

    /// The EPSG code of this node itself, as WKT2 (`ID["EPSG",4326]`) or WKT1 (`AUTHORITY["EPSG","4326"]`) states it.
    #[must_use]
    pub fn epsg_in_any_wkt(&self) -> Option<u32> {
        self.nodes().filter(|n| n.is("ID") || n.is("AUTHORITY")).find_map(|id| {
            let mut words = id.items.iter().filter_map(|i| match i {
                Item::Text(text) | Item::Word(text) => Some(text.as_str()),
                Item::Node(_) => None,
            });
            words.next().filter(|a| a.eq_ignore_ascii_case("EPSG"))?;
            words.next()?.trim().parse().ok()
        })
    }

    /// Returns the node without its own identifiers.
    #[must_use]
    pub fn without_id(mut self) -> Self {
        self.items.retain(|i| !matches!(i, Item::Node(n) if n.is("ID")));
        self
    }

    /// Replaces the first child whose keyword is one of `keywords` by `node`, in the same position; appends `node` where there
    /// is none.
    #[must_use]
    pub fn replacing(mut self, keywords: &[&str], node: Node) -> Self {
        let existing = self.items.iter_mut().find(|i| matches!(i, Item::Node(n) if keywords.iter().any(|k| n.is(k))));
        match existing {
            Some(item) => *item = Item::Node(node),
            None => self.items.push(Item::Node(node)),
        }
        self
    }

    /// Parses one node. White space around it is allowed, other text is not.
    ///
    /// # Errors
    /// When the text is not one complete node.
    pub fn parse(text: &str) -> Result<Self, WktError> {
        let mut reader = Reader { text, offset: 0 };
        let node = reader.node(0)?;
        reader.space();
        match reader.peek() {
            None => Ok(node),
            Some(found) => Err(WktError::Unexpected { found, offset: reader.offset }),
        }
    }

    /// The definition on several lines, with child nodes indented by four spaces a level.
    #[must_use]
    pub fn pretty(&self) -> String {
        let mut out = String::new();
        self.write_pretty(&mut out, 0);
        out
    }

    fn write_pretty(&self, out: &mut String, level: usize) {
        out.push_str(&self.keyword);
        out.push('[');
        for (i, item) in self.items.iter().enumerate() {
            if i > 0 {
                out.push(',');
            }
            match item {
                Item::Node(node) if node.is("ID") && self.nodes().count() == 1 => node.write_pretty(out, level + 1),
                Item::Node(node) => {
                    out.push('\n');
                    out.extend(std::iter::repeat_n(' ', 4 * (level + 1)));
                    node.write_pretty(out, level + 1);
                }
                other => {
                    // Writing to a String cannot fail.
                    let _ = write!(out, "{other}");
                }
            }
        }
        out.push(']');
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(node) => node.fmt(f),
            Self::Word(word) => f.write_str(word),
            Self::Text(text) => {
                f.write_char('"')?;
                for c in text.chars() {
                    match c {
                        '"' => f.write_str("\"\"")?,
                        c if c.is_control() => f.write_char(' ')?,
                        c => f.write_char(c)?,
                    }
                }
                f.write_char('"')
            }
        }
    }
}

/// The definition on one line.
impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[", self.keyword)?;
        for (i, item) in self.items.iter().enumerate() {
            if i > 0 {
                f.write_char(',')?;
            }
            item.fmt(f)?;
        }
        f.write_char(']')
    }
}

/// A double as WKT writes numbers: with an exponent where it is very large or small. `Display` for `f64` never uses one, and a
/// hostile 1e300 would take 301 digits.
#[must_use]
pub fn number(value: f64) -> String {
    let size = value.abs();
    if size != 0.0 && !(1e-7..1e21).contains(&size) { format!("{value:E}") } else { format!("{value}") }
}

struct Reader<'a> {
    text: &'a str,
    offset: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<char> {
        self.text.get(self.offset..).and_then(|rest| rest.chars().next())
    }

    fn bump(&mut self, c: char) {
        self.offset += c.len_utf8();
    }

    fn space(&mut self) {
        while let Some(c) = self.peek().filter(|c| c.is_whitespace()) {
            self.bump(c);
        }
    }

    fn take_word(&mut self) -> String {
        let mut word = String::new();
        while let Some(c) = self.peek().filter(|&c| c.is_ascii_alphanumeric() || "_+-.:/".contains(c)) {
            word.push(c);
            self.bump(c);
        }
        word
    }

    fn quoted(&mut self) -> Result<String, WktError> {
        self.bump('"');
        let mut out = String::new();
        while let Some(c) = self.peek() {
            self.bump(c);
            if c != '"' {
                out.push(c);
            } else if self.peek() == Some('"') {
                self.bump('"');
                out.push('"');
            } else {
                return Ok(out);
            }
        }
        Err(WktError::Truncated("a quoted string".to_owned()))
    }

    fn node(&mut self, depth: usize) -> Result<Node, WktError> {
        self.space();
        let keyword = self.take_word();
        self.space();
        match self.peek() {
            Some(c @ ('[' | '(')) if !keyword.is_empty() => self.bump(c),
            Some(found) => return Err(WktError::Unexpected { found, offset: self.offset }),
            None => return Err(WktError::Truncated("its first keyword".to_owned())),
        }
        self.body(keyword, depth)
    }

    /// Reads what follows the opening bracket.
    fn body(&mut self, keyword: String, depth: usize) -> Result<Node, WktError> {
        if depth >= MAX_DEPTH {
            return Err(WktError::TooDeep);
        }
        let mut node = Node { keyword, items: Vec::new() };
        loop {
            self.space();
            match self.peek() {
                None => return Err(WktError::Truncated(node.keyword)),
                Some(c @ (']' | ')')) => {
                    self.bump(c);
                    return Ok(node);
                }
                Some(',') => self.bump(','),
                Some('"') => {
                    let text = self.quoted()?;
                    node.items.push(Item::Text(text));
                }
                Some(found) => {
                    let word = self.take_word();
                    self.space();
                    match self.peek() {
                        _ if word.is_empty() => return Err(WktError::Unexpected { found, offset: self.offset }),
                        Some(c @ ('[' | '(')) => {
                            self.bump(c);
                            let child = self.body(word, depth + 1)?;
                            node.items.push(Item::Node(child));
                        }
                        _ => node.items.push(Item::Word(word)),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        r#"GEOGCRS["a ""b""",DATUM["d",ELLIPSOID["e",6378137,298.257223563]],AXIS["x",north],ID["EPSG",4326]]"#;

    #[test]
    fn writes_back_what_it_read() {
        let node = Node::parse(TEXT).unwrap();
        assert_eq!(node.to_string(), TEXT);
        assert_eq!(Node::parse(&node.pretty()).unwrap(), node);
        assert_eq!(node.name(), Some("a \"b\""));
        assert_eq!(node.epsg(), Some(4326));
        assert_eq!(node.child(&["DATUM"]).unwrap().epsg(), None);
    }

    #[test]
    fn refuses_every_truncation() {
        for (len, _) in TEXT.char_indices() {
            assert!(Node::parse(&TEXT[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn refuses_nesting_that_would_overflow_the_stack() {
        assert_eq!(Node::parse(&"A[".repeat(100_000)), Err(WktError::TooDeep));
    }

    #[test]
    fn keeps_control_characters_of_a_citation_out_of_the_text() {
        assert_eq!(Node::named("A", "x\n\"y").to_string(), "A[\"x \"\"y\"]");
    }

    #[test]
    fn writes_extreme_numbers_shortly() {
        assert_eq!(number(1e300), "1E300");
        assert_eq!(number(0.0174532925199433), "0.0174532925199433");
        assert_eq!(number(-0.0), "-0");
    }
}
