//! Metadata domains: named lists of keys and values, or one document each.

use std::collections::HashMap;

/// One metadata domain: keys and values in the order of the file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Domain {
    /// `""` is the default domain.
    pub name: String,
    /// Keys are unique in any case. Of two equal keys the later one counts, in the position of the first.
    pub items: Vec<(String, String)>,
}

impl Domain {
    /// The value of a key, which matches in any case.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<&str> {
        self.items.iter().find(|(name, _)| name.eq_ignore_ascii_case(key)).map(|(_, value)| value.as_str())
    }
}

/// A domain that holds one document instead of keys and values, such as `xml:XMP`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XmlDomain {
    /// Its name, with the prefix `xml:`.
    pub name: String,
    /// The document, unparsed.
    pub text: String,
}

/// Collects domains. An index of names and keys keeps the time linear: a hostile file may have a million keys.
#[derive(Debug, Default)]
pub(crate) struct DomainsBuilder {
    list: Vec<Domain>,
    xml: Vec<XmlDomain>,
    index: HashMap<String, DomainIndex>,
    xml_index: HashMap<String, usize>,
}

/// Position of a domain in the list, and positions of its keys.
#[derive(Debug, Default)]
struct DomainIndex {
    position: usize,
    items: HashMap<String, usize>,
}

impl DomainsBuilder {
    /// Sets an item, or the document itself where the domain's name starts with `xml:`.
    pub(crate) fn set_any(&mut self, domain: &str, key: &str, value: String) {
        let is_xml = domain.get(..4).is_some_and(|head| head.eq_ignore_ascii_case("xml:"));
        if is_xml { self.set_xml(domain, value) } else { self.set(domain, key, value) }
    }

    /// Sets an item. An item with the same key in another case is replaced, with its spelling.
    pub(crate) fn set(&mut self, domain: &str, key: &str, value: String) {
        let (domain, index) = self.domain(domain);
        let next = domain.items.len();
        let position = *index.items.entry(key.to_ascii_lowercase()).or_insert(next);
        match domain.items.get_mut(position) {
            Some(item) => *item = (key.to_owned(), value),
            None => domain.items.push((key.to_owned(), value)),
        }
    }

    /// Adds a domain if it is missing, so that it is listed even if it stays empty.
    pub(crate) fn add(&mut self, domain: &str) {
        self.domain(domain);
    }

    pub(crate) fn set_xml(&mut self, domain: &str, text: String) {
        let index = *self.xml_index.entry(domain.to_ascii_lowercase()).or_insert_with(|| {
            self.xml.push(XmlDomain { name: domain.to_owned(), text: String::new() });
            self.xml.len() - 1
        });
        if let Some(document) = self.xml.get_mut(index) {
            document.text = text;
        }
    }

    fn domain(&mut self, name: &str) -> (&mut Domain, &mut DomainIndex) {
        let index = self.index.entry(name.to_ascii_lowercase()).or_insert_with(|| {
            self.list.push(Domain { name: name.to_owned(), items: Vec::new() });
            DomainIndex { position: self.list.len() - 1, items: HashMap::new() }
        });
        (&mut self.list[index.position], index)
    }

    pub(crate) fn finish(self) -> (Vec<Domain>, Vec<XmlDomain>) {
        (self.list, self.xml)
    }
}
