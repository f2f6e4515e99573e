//! The tree of a document: flat, made of slices of the source.

use std::borrow::Cow;
use std::num::NonZeroU32;

use quick_xml::events::Event;
use quick_xml::events::attributes::Attributes;
use quick_xml::reader::Reader;

use crate::geo::{
    number::is_space,
    problems::shorten,
    xml::{
        bounds::{Bounds, XmlError},
        text::unescape,
    },
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Element,
    /// Escaped text.
    Text,
    /// A CDATA section, whose text has no escapes.
    Verbatim,
    /// A comment or processing instruction. GDAL gives an element that holds one beside its text no value.
    Other,
}

#[derive(Clone, Debug)]
struct Node<'a> {
    /// The name of an element, or a text.
    text: &'a str,
    /// Byte range between the tags.
    inner: (u32, u32),
    /// Range in the attribute table.
    attributes: (u32, u32),
    first: Option<NonZeroU32>,
    next: Option<NonZeroU32>,
    kind: Kind,
}

/// A parsed document. It is flat, so that neither parsing nor dropping it recurses.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    source: &'a str,
    nodes: Vec<Node<'a>>,
    attributes: Vec<(&'a str, &'a str)>,
    /// Whether a declaration, comment or instruction came before the root.
    pub(crate) prolog: bool,
    /// Whether text that was not read followed the root.
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
        config.allow_dangling_amp = true; // `a & b` is common, and GDAL accepts it
        config.allow_unmatched_ends = true; // `close` compares the names instead, in any case
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
    // node 0 is the root, which is not a child
    u32::try_from(index).ok().and_then(NonZeroU32::new)
}

fn narrow(index: usize) -> u32 {
    // the source is shorter than 4 GiB, and has at least one byte for everything counted here
    u32::try_from(index).unwrap_or(u32::MAX)
}

/// An element whose end tag has not been read.
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
        // quick-xml's attributes borrow from the event; parsed from the source, they live as long as it does
        let tag = self.tree.source.get(start + 1..end.saturating_sub(end_len)).unwrap_or_default();
        let from = self.tree.attributes.len();
        let mut attributes = Attributes::new(tag, name_len);
        attributes.with_checks(false); // its check for duplicates is quadratic; as in GDAL, the first one counts
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

    /// Ends the current text at offset `to`. Consecutive texts and references form one text.
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
            let (parent, previous) = (parent.node, parent.last_child.replace(index));
            match previous {
                Some(previous) => self.tree.nodes.get_mut(previous).map(|node| node.next = link(index)),
                None => self.tree.nodes.get_mut(parent).map(|node| node.first = link(index)),
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

    /// The text of an element that holds nothing else. As in GDAL, an empty element has no value, and neither has one with other nodes
    /// beside its text.
    pub(crate) fn value(self) -> Option<Text<'a>> {
        let mut nodes = self.nodes();
        let (_, only) = nodes.next()?;
        if nodes.next().is_some() { None } else { Text::of(only) }
    }

    /// The text at the start of an element, whatever follows. GDAL reads `<MDI>` in this way.
    pub(crate) fn leading_text(self) -> Option<Text<'a>> {
        self.nodes().next().and_then(|(_, node)| Text::of(node))
    }

    /// The value of the first child of that name.
    pub(crate) fn child_value(self, name: &str) -> Option<Cow<'a, str>> {
        self.child(name)?.value().map(|text| text.unescaped)
    }

    /// The source between its tags.
    pub(crate) fn inner(self) -> &'a str {
        let inner = self.node().map_or((0, 0), |node| node.inner);
        self.tree.source.get(inner.0 as usize..inner.1 as usize).unwrap_or_default()
    }
}

/// The content of a text node.
#[derive(Debug)]
pub(crate) struct Text<'a> {
    pub(crate) unescaped: Cow<'a, str>,
    /// Whether the text was cut at an escape that could not be read.
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
