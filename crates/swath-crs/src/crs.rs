//! A coordinate reference system: its name, its codes, its definition and its units.

use crate::{epsg, unit::Unit, wkt::Node};

/// The kind of a system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CrsKind {
    /// Map coordinates in a unit of length.
    Projected,
    /// Longitude and latitude.
    Geographic,
    /// X, Y, Z from the Earth's centre.
    Geocentric,
    /// Heights alone.
    Vertical,
    /// A horizontal system and a vertical one.
    Compound,
    /// A local grid, or one whose relation to the Earth is not given.
    Engineering,
    /// Known by a code only, without a definition.
    Unknown,
}

/// The organisation that assigned a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Authority {
    /// The EPSG Dataset.
    Epsg,
    /// Esri's own ranges.
    Esri,
}

/// A coordinate reference system.
#[derive(Debug, Clone, PartialEq)]
pub struct Crs {
    /// Its name: EPSG's for a code, else the file's citation.
    pub name: String,
    /// The EPSG code the file states. For a compound system of two codes, the horizontal one.
    pub epsg: Option<u32>,
    /// The Esri code the file states, where it is in one of Esri's ranges.
    pub esri: Option<u32>,
    /// The EPSG code of the vertical part.
    pub vertical_epsg: Option<u32>,
    /// The definition, on one line. WKT2:2019, except that a definition in an Esri citation stays WKT1.
    pub wkt2: Option<String>,
    /// The kind of system.
    pub kind: CrsKind,
    /// Unit of the horizontal axes.
    pub unit: Option<Unit>,
    /// Unit of the vertical axis, where there is one.
    pub vertical_unit: Option<Unit>,
    /// The horizontal part of a compound system.
    pub horizontal: Option<Box<Crs>>,
    /// What the reader found wrong or left out, in sentences for the user.
    pub problems: Vec<String>,
}

impl Crs {
    /// The code in `AUTHORITY:CODE` form: `EPSG:32633`, `EPSG:32633+5773`, `ESRI:54009`.
    #[must_use]
    pub fn code(&self) -> Option<String> {
        match (self.epsg, self.esri) {
            (Some(code), _) => match (self.vertical_epsg, &self.horizontal) {
                (Some(vertical), Some(h)) if h.epsg == Some(code) => Some(format!("EPSG:{code}+{vertical}")),
                // This form cannot express a vertical part without a code.
                (None, Some(h)) if h.epsg == Some(code) => None,
                _ => Some(format!("EPSG:{code}")),
            },
            (None, Some(code)) => Some(format!("ESRI:{code}")),
            (None, None) => None,
        }
    }

    /// The organisation that assigned the code.
    #[must_use]
    pub fn authority(&self) -> Option<Authority> {
        self.epsg.map(|_| Authority::Epsg).or(self.esri.map(|_| Authority::Esri))
    }

    /// The definition on several lines.
    #[must_use]
    pub fn wkt2_pretty(&self) -> Option<String> {
        Node::parse(self.wkt2.as_deref()?).ok().map(|n| n.pretty())
    }

    /// The system with this EPSG code; `None` where the dataset lacks it.
    #[must_use]
    pub fn from_epsg(code: u32) -> Option<Self> {
        Some(Self::from_node(&epsg::definition(code)?))
    }

    /// The system that a definition describes.
    #[must_use]
    pub fn from_node(node: &Node) -> Self {
        let inner = if node.is("BOUNDCRS") { node.child(&["SOURCECRS"]).and_then(|s| s.nodes().next()) } else { None };
        let inner = inner.unwrap_or(node);
        let kind = match inner.keyword.to_ascii_uppercase().as_str() {
            "PROJCRS" | "PROJCS" => CrsKind::Projected,
            "GEOGCRS" | "GEOGCS" => CrsKind::Geographic,
            "GEODCRS" | "GEOCCS" => CrsKind::Geocentric,
            "VERTCRS" | "VERT_CS" => CrsKind::Vertical,
            "COMPOUNDCRS" | "COMPD_CS" => CrsKind::Compound,
            "ENGCRS" | "LOCAL_CS" => CrsKind::Engineering,
            _ => CrsKind::Unknown,
        };
        let unit = epsg::axis_unit(inner);
        let vertical = inner.nodes().find(|n| n.is("VERTCRS"));
        Self {
            name: inner.name().unwrap_or("unnamed").to_owned(),
            epsg: inner.epsg(),
            esri: None,
            vertical_epsg: if kind == CrsKind::Vertical { inner.epsg() } else { vertical.and_then(Node::epsg) },
            wkt2: Some(node.to_string()),
            kind,
            vertical_unit: if kind == CrsKind::Vertical { unit.clone() } else { vertical.and_then(epsg::axis_unit) },
            unit: if kind == CrsKind::Vertical { None } else { unit },
            horizontal: inner
                .child(&["PROJCRS", "GEOGCRS"])
                .filter(|_| vertical.is_some())
                .map(|h| Box::new(Self::from_node(h))),
            problems: Vec::new(),
        }
    }
}

impl Crs {
    /// Reads the text of a side file: WKT, or `EPSG:` and a code. Text that is neither gives a system of unknown kind.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        let text = text.trim();
        let code = text.strip_prefix("EPSG:").and_then(|code| code.parse().ok());
        if let Some(known) = code.and_then(Self::from_epsg) {
            return known;
        }
        match Node::parse(text) {
            Ok(node) => {
                let mut crs = Self::from_node(&node);
                crs.wkt2 = Some(text.to_owned());
                crs.epsg = node.epsg();
                crs
            }
            Err(error) => Self {
                name: short_name(text),
                epsg: code,
                esri: None,
                vertical_epsg: None,
                wkt2: None,
                kind: CrsKind::Unknown,
                unit: None,
                vertical_unit: None,
                horizontal: None,
                problems: vec![format!("the reference system of the side file cannot be parsed: {error}")],
            },
        }
    }
}

/// Longest text that becomes a name, in characters.
const MAX_NAME: usize = 512;

/// Trims a text and cuts it to the length of a name.
#[must_use]
pub fn short_name(text: &str) -> String {
    text.trim().chars().take(MAX_NAME).collect()
}
