//! An XML tree that is bounded before it is built.
//!
//! The tokens come from quick-xml, which expands no entity and opens nothing; the tree keeps slices of the input, so its
//! memory is the node count times a constant. Text follows GDAL's reader (`CPLParseXMLString`), found by experiment with
//! GDAL 3.12: white space before a text is dropped and after it kept, line ends stay as they are, names match without
//! case, and a text is cut where an escape cannot be read.

use std::borrow::Cow;
use std::num::NonZeroU32;

use quick_xml::events::Event;
use quick_xml::events::attributes::Attributes;
use quick_xml::reader::Reader;

use super::number::is_space;

/// How much XML to accept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Longest document in bytes; longer ones are refused unread. Never more than 4 GiB - 1, whatever is asked.
    pub bytes: usize,
    /// Most elements open at once. GDAL's own limit is in the thousands; XMP and ISO 19115 stay below 40.
    pub depth: usize,
    /// Most elements, attributes, texts and comments together; each costs at most 48 bytes.
    pub nodes: usize,
}

impl Default for Bounds {
    /// 16 MiB, 256 deep, 2^20 nodes: at most some 50 MB for the tree, and room for the largest histograms seen.
    fn default() -> Self {
        Self { bytes: 16 << 20, depth: 256, nodes: 1 << 20 }
    }
}

impl Bounds {
    /// The same with another size limit.
    #[must_use]
    pub fn with_bytes(self, bytes: usize) -> Self {
        Self { bytes, ..self }
    }
}

/// Why a document was not read. None of these makes the raster itself unreadable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum XmlError {
    /// Refused for its size alone.
    #[error("XML of {len} bytes is longer than the limit of {limit}")]
    TooLong {
        /// Its size.
        len: usize,
        /// The limit.
        limit: usize,
    },
    /// Nested past the limit.
    #[error("XML byte {offset}: elements nested deeper than {limit}")]
    TooDeep {
        /// Where.
        offset: usize,
        /// The limit.
        limit: usize,
    },
    /// More nodes than the limit.
    #[error("XML byte {offset}: more than {limit} elements, attributes and texts")]
    TooMany {
        /// Where.
        offset: usize,
        /// The limit.
        limit: usize,
    },
    /// A document type: the only door to entity bombs and external entities, and nothing GDAL or ArcGIS writes has one.
    #[error("XML byte {offset}: document types (DTD) are refused")]
    DocumentType {
        /// Where.
        offset: usize,
    },
    /// Not well formed, or cut short.
    #[error("XML byte {offset}: {reason}")]
    Malformed {
        /// Where.
        offset: usize,
        /// What is wrong.
        reason: String,
    },
    /// Well formed, but not the document looked for.
    #[error("XML root is <{found}>, not <{expected}>")]
    Root {
        /// Its root, shortened.
        found: String,
        /// The root looked for.
        expected: &'static str,
    },
}

/// Most problems listed one by one, so that a hostile file cannot turn each of its nodes into a sentence.
const MAX_NOTES: usize = 64;

/// Remarks about a document, bounded.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    list: Vec<String>,
    left_out: usize,
}

impl Notes {
    /// Adds a remark; `text` is not called once the list is full.
    pub(crate) fn add(&mut self, text: impl FnOnce() -> String) {
        if self.list.len() < MAX_NOTES {
            self.list.push(text());
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn finish(mut self) -> Vec<String> {
        if self.left_out > 0 {
            self.list.push(format!("and {} more", self.left_out));
        }
        self.list
    }
}

/// Text for a message: short, and without line breaks or control characters.
pub(crate) fn shorten(text: &str) -> String {
    const LEN: usize = 60;
    let mut short: String = text.chars().take(LEN).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if text.chars().nth(LEN).is_some() {
        short.push('…');
    }
    short
}

/// Turns bytes into text: without a mark, up to the first NUL, and with what is not UTF-8 taken as Latin-1.
///
/// GDAL's tag is a C string, so nothing after a NUL counts. Older writers put Latin-1 there, and GDAL hands such bytes on
/// as they are; replaced one by one, the rest of a document that is UTF-8 stays right and `caf\xe9` becomes `café`.
pub(crate) fn decode<'a>(bytes: &'a [u8], bounds: Bounds, notes: &mut Notes) -> Result<Cow<'a, str>, XmlError> {
    let limit = bounds.bytes.min(u32::MAX as usize / 2); // Latin-1 may double the length, and the tree counts in u32
    if bytes.len() > limit {
        return Err(XmlError::TooLong { len: bytes.len(), limit });
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (bytes, rest) = match bytes.iter().position(|&byte| byte == 0) {
        Some(end) => bytes.split_at(end),
        None => (bytes, &[][..]),
    };
    if rest.iter().any(|&byte| byte != 0) {
        notes.add(|| format!("{} bytes after a NUL at byte {} were not read", rest.len(), bytes.len()));
    }
    if let Ok(text) = str::from_utf8(bytes) {
        return Ok(Cow::Borrowed(text));
    }
    let mut text = String::with_capacity(bytes.len());
    let mut replaced = 0_usize;
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        text.extend(chunk.invalid().iter().map(|&byte| char::from(byte)));
        replaced += chunk.invalid().len();
    }
    notes.add(|| format!("{replaced} bytes are not UTF-8 and were read as Latin-1"));
    Ok(Cow::Owned(text))
}

/// Resolves `&lt; &gt; &amp; &apos; &quot; &#n; &#xh;` as GDAL does; `true` when the text had to be cut.
///
/// GDAL drops everything from an escape that it cannot read (`a & b` becomes `a `), and so do we, since its users see that
/// value; the caller says so in its problems. `&#0;` and `&#;` vanish, and what no character has becomes U+FFFD (GDAL lets
/// lone surrogates through as invalid UTF-8, which a `str` cannot hold).
pub(crate) fn unescape(raw: &str) -> (Cow<'_, str>, bool) {
    let Some(first) = raw.find('&') else { return (Cow::Borrowed(raw), false) };
    let mut text = String::with_capacity(raw.len());
    let mut rest = raw;
    let mut next = Some(first);
    while let Some(at) = next {
        let (before, tail) = rest.split_at(at);
        text.push_str(before);
        let Some((len, c)) = reference(tail) else { return (Cow::Owned(text), true) };
        text.extend(c);
        rest = tail.get(len..).unwrap_or_default();
        next = rest.find('&');
    }
    text.push_str(rest);
    (Cow::Owned(text), false)
}

/// Length and character of the reference at the start of `text`; no character for `&#0;`.
fn reference(text: &str) -> Option<(usize, Option<char>)> {
    const NAMED: [(&str, char); 5] = [("&lt;", '<'), ("&gt;", '>'), ("&amp;", '&'), ("&apos;", '\''), ("&quot;", '"')];
    if let Some(number) = text.strip_prefix("&#") {
        let (digits, radix, lead) = match number.strip_prefix(['x', 'X']) {
            Some(digits) => (digits, 16, 3),
            None => (number, 10, 2),
        };
        let mut code = 0_u32;
        for (at, c) in digits.char_indices() {
            if c == ';' {
                let c =
                    if code == 0 { None } else { Some(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)) };
                return Some((lead + at + 1, c));
            }
            code = code.saturating_mul(radix).saturating_add(c.to_digit(radix)?);
        }
        return None;
    }
    NAMED
        .into_iter()
        .find(|(name, _)| text.get(..name.len()).is_some_and(|head| head.eq_ignore_ascii_case(name)))
        .map(|(name, c)| (name.len(), Some(c)))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Element,
    /// Escaped text.
    Text,
    /// A CDATA section, which is text as it stands.
    Verbatim,
    /// A comment or processing instruction: kept because an element that holds one besides its text has no value in GDAL.
    Other,
}

#[derive(Clone, Debug)]
struct Node<'a> {
    /// An element's name, or a text.
    text: &'a str,
    /// Between the tags, as offsets into the source.
    inner: (u32, u32),
    /// Its part of the attribute table.
    attributes: (u32, u32),
    first: Option<NonZeroU32>,
    next: Option<NonZeroU32>,
    kind: Kind,
}

/// A parsed document: flat, so that neither reading nor dropping it recurses.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    source: &'a str,
    nodes: Vec<Node<'a>>,
    attributes: Vec<(&'a str, &'a str)>,
    /// A declaration, comment or instruction stood before the root.
    pub(crate) prolog: bool,
    /// Something other than white space stood after the root, and was not read.
    pub(crate) trailer: bool,
}

impl<'a> Tree<'a> {
    /// Parses up to the end of the first root element.
    pub(crate) fn parse(source: &'a str, bounds: Bounds) -> Result<Self, XmlError> {
        if u32::try_from(source.len()).is_err() {
            return Err(XmlError::TooLong { len: source.len(), limit: u32::MAX as usize });
        }
        let mut reader = Reader::from_str(source);
        let config = reader.config_mut();
        config.allow_dangling_amp = true; // `a & b` is common, and GDAL reads on
        config.allow_unmatched_ends = true; // names are compared here instead, without case
        config.check_end_names = false;
        let mut build = Build {
            tree: Tree { source, nodes: Vec::new(), attributes: Vec::new(), prolog: false, trailer: false },
            open: Vec::new(),
            bounds,
            text_from: None,
        };
        loop {
            let start = offset(reader.buffer_position());
            let event = reader.read_event();
            let end = offset(reader.buffer_position());
            let event = event.map_err(|error| XmlError::Malformed {
                offset: offset(reader.error_position()),
                reason: shorten(&error.to_string()),
            })?;
            if !matches!(event, Event::Text(_) | Event::GeneralRef(_)) {
                build.end_text(start)?;
            }
            match event {
                Event::Start(tag) => build.open(start, end, tag.name().0.len(), 1)?,
                Event::Empty(tag) => {
                    build.open(start, end, tag.name().0.len(), 2)?;
                    build.open.pop();
                    if build.open.is_empty() {
                        break build.finish(end);
                    }
                }
                Event::End(tag) => {
                    build.close(start, tag.name().0)?;
                    if build.open.is_empty() {
                        break build.finish(end);
                    }
                }
                Event::Text(_) | Event::GeneralRef(_) => {
                    build.text_from.get_or_insert(start);
                }
                Event::CData(_) => {
                    // `<![CDATA[` and `]]>`
                    let text = start.checked_add(9).zip(end.checked_sub(3)).and_then(|(from, to)| source.get(from..to));
                    build.leaf(start, Kind::Verbatim, text.unwrap_or_default())?;
                }
                Event::Comment(_) | Event::PI(_) | Event::Decl(_) => build.leaf(start, Kind::Other, "")?,
                Event::DocType(_) => return Err(XmlError::DocumentType { offset: start }),
                Event::Eof => {
                    let reason = match build.open.last().and_then(|open| build.tree.nodes.get(open.node)) {
                        Some(node) => format!("the text ends inside <{}>", shorten(node.text)),
                        None => "no element".to_owned(),
                    };
                    return Err(XmlError::Malformed { offset: end, reason });
                }
            }
        }
    }

    pub(crate) fn root(&self) -> Element<'_, 'a> {
        Element { tree: self, index: 0 }
    }
}

fn offset(position: u64) -> usize {
    usize::try_from(position).unwrap_or(usize::MAX)
}

fn link(index: usize) -> Option<NonZeroU32> {
    // node 0 is the root, which is nobody's child
    u32::try_from(index).ok().and_then(NonZeroU32::new)
}

fn narrow(index: usize) -> u32 {
    // the source is shorter than 4 GiB, and nothing counted here outnumbers its bytes
    u32::try_from(index).unwrap_or(u32::MAX)
}

struct Open {
    node: usize,
    last_child: Option<usize>,
}

struct Build<'a> {
    tree: Tree<'a>,
    open: Vec<Open>,
    bounds: Bounds,
    text_from: Option<usize>,
}

impl<'a> Build<'a> {
    fn open(&mut self, start: usize, end: usize, name_len: usize, end_len: usize) -> Result<(), XmlError> {
        if self.open.len() >= self.bounds.depth {
            return Err(XmlError::TooDeep { offset: start, limit: self.bounds.depth });
        }
        // quick-xml lends attributes for as long as the event lives; taken from the source they live as long as it does
        let tag = self.tree.source.get(start + 1..end.saturating_sub(end_len)).unwrap_or_default();
        let from = self.tree.attributes.len();
        let mut attributes = Attributes::new(tag, name_len);
        attributes.with_checks(false); // its check for duplicates is quadratic; the first one counts, as in GDAL
        for attribute in attributes {
            let attribute = attribute
                .map_err(|error| XmlError::Malformed { offset: start, reason: shorten(&error.to_string()) })?;
            self.count(start)?;
            if let Cow::Borrowed(value) = attribute.value {
                self.tree.attributes.push((attribute.key.0, value));
            }
        }
        let index = self.push(
            start,
            Node {
                text: tag.get(..name_len).unwrap_or_default(),
                inner: (narrow(end), narrow(end)),
                attributes: (narrow(from), narrow(self.tree.attributes.len())),
                first: None,
                next: None,
                kind: Kind::Element,
            },
        )?;
        self.open.push(Open { node: index, last_child: None });
        Ok(())
    }

    fn close(&mut self, start: usize, name: &str) -> Result<(), XmlError> {
        let malformed = |reason| Err(XmlError::Malformed { offset: start, reason });
        let Some(node) = self.open.pop().and_then(|open| self.tree.nodes.get_mut(open.node)) else {
            return malformed(format!("</{}> closes nothing", shorten(name)));
        };
        if !node.text.eq_ignore_ascii_case(name) {
            return malformed(format!("</{}> closes <{}>", shorten(name), shorten(node.text)));
        }
        node.inner.1 = narrow(start);
        Ok(())
    }

    /// Texts and references that follow one another are one text; `to` is where it ends.
    fn end_text(&mut self, to: usize) -> Result<(), XmlError> {
        let Some(from) = self.text_from.take() else { return Ok(()) };
        let text = self.tree.source.get(from..to).unwrap_or_default().trim_start_matches(is_space);
        if text.is_empty() { Ok(()) } else { self.leaf(from, Kind::Text, text) }
    }

    fn leaf(&mut self, start: usize, kind: Kind, text: &'a str) -> Result<(), XmlError> {
        if self.open.is_empty() {
            self.tree.prolog = true;
            return Ok(());
        }
        self.push(start, Node { text, inner: (0, 0), attributes: (0, 0), first: None, next: None, kind })?;
        Ok(())
    }

    fn push(&mut self, start: usize, node: Node<'a>) -> Result<usize, XmlError> {
        self.count(start)?;
        let index = self.tree.nodes.len();
        self.tree.nodes.push(node);
        if let Some(parent) = self.open.last_mut() {
            let (holder, before) = (parent.node, parent.last_child.replace(index));
            match before {
                Some(before) => self.tree.nodes.get_mut(before).map(|node| node.next = link(index)),
                None => self.tree.nodes.get_mut(holder).map(|node| node.first = link(index)),
            };
        }
        Ok(index)
    }

    fn count(&self, start: usize) -> Result<(), XmlError> {
        if self.tree.nodes.len() + self.tree.attributes.len() >= self.bounds.nodes {
            return Err(XmlError::TooMany { offset: start, limit: self.bounds.nodes });
        }
        Ok(())
    }

    fn finish(mut self, end: usize) -> Result<Tree<'a>, XmlError> {
        self.tree.trailer = !self.tree.source.get(end..).unwrap_or_default().trim_matches(is_space).is_empty();
        Ok(self.tree)
    }
}

/// An element of a [`Tree`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Element<'t, 'a> {
    tree: &'t Tree<'a>,
    index: usize,
}

impl<'t, 'a> Element<'t, 'a> {
    fn node(self) -> Option<&'t Node<'a>> {
        self.tree.nodes.get(self.index)
    }

    pub(crate) fn name(self) -> &'a str {
        self.node().map_or("", |node| node.text)
    }

    pub(crate) fn is(self, name: &str) -> bool {
        self.name().eq_ignore_ascii_case(name)
    }

    /// The first attribute of that name, unescaped.
    pub(crate) fn attribute(self, name: &str) -> Option<Cow<'a, str>> {
        let (from, to) = self.node()?.attributes;
        let attributes = self.tree.attributes.get(from as usize..to as usize)?;
        attributes.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| unescape(value).0)
    }

    fn nodes(self) -> impl Iterator<Item = (usize, &'t Node<'a>)> {
        let mut next = self.node().and_then(|node| node.first);
        std::iter::from_fn(move || {
            let index = next?.get() as usize;
            let node = self.tree.nodes.get(index)?;
            next = node.next;
            Some((index, node))
        })
    }

    pub(crate) fn children(self) -> impl Iterator<Item = Element<'t, 'a>> {
        let tree = self.tree;
        self.nodes().filter(|(_, node)| node.kind == Kind::Element).map(move |(index, _)| Element { tree, index })
    }

    pub(crate) fn child(self, name: &str) -> Option<Element<'t, 'a>> {
        self.children().find(|child| child.is(name))
    }

    /// Its text when that is all it holds; GDAL has no value for an empty element, nor for text beside anything else.
    pub(crate) fn value(self) -> Option<Text<'a>> {
        let mut nodes = self.nodes();
        let (_, only) = nodes.next()?;
        if nodes.next().is_some() { None } else { Text::of(only) }
    }

    /// Its text when it begins with one, whatever follows: how GDAL reads `<MDI>`.
    pub(crate) fn leading_text(self) -> Option<Text<'a>> {
        self.nodes().next().and_then(|(_, node)| Text::of(node))
    }

    /// The value of the first child of that name.
    pub(crate) fn child_value(self, name: &str) -> Option<Cow<'a, str>> {
        self.child(name)?.value().map(|text| text.unescaped)
    }

    /// What stands between its tags, as written.
    pub(crate) fn inner(self) -> &'a str {
        let inner = self.node().map_or((0, 0), |node| node.inner);
        self.tree.source.get(inner.0 as usize..inner.1 as usize).unwrap_or_default()
    }
}

/// A text node's content.
#[derive(Debug)]
pub(crate) struct Text<'a> {
    pub(crate) unescaped: Cow<'a, str>,
    /// An escape could not be read and the text stops there.
    pub(crate) cut: bool,
}

impl<'a> Text<'a> {
    fn of(node: &Node<'a>) -> Option<Self> {
        let (unescaped, cut) = match node.kind {
            Kind::Text => unescape(node.text),
            Kind::Verbatim => (Cow::Borrowed(node.text), false),
            Kind::Element | Kind::Other => return None,
        };
        Some(Self { unescaped, cut })
    }
}

#[cfg(test)]
mod tests;
