//! Identifies the version of a file that was opened, and checks that responses belong to it.

use http::{
    HeaderMap,
    header::{ETAG, LAST_MODIFIED},
};

use super::failure::Failure;
use crate::fault::RemoteFault;

/// The version of a file, as stated by the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Version {
    etag: Option<String>,
    modified: Option<String>,
    pub(crate) size: u64,
}

impl Version {
    pub(crate) fn of(headers: &HeaderMap, size: u64) -> Self {
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        Self { etag: text(ETAG), modified: text(LAST_MODIFIED), size }
    }

    /// The version as one line, for comparing files.
    pub(crate) fn mark(&self) -> String {
        let tag = self.etag.as_deref().or(self.modified.as_deref()).unwrap_or_default();
        format!("{tag} {}", self.size)
    }

    /// The ETag, if the server compares it byte by byte. A weak one would never match.
    pub(crate) fn strong_etag(&self) -> Option<&str> {
        self.etag.as_deref().filter(|etag| etag.starts_with('"'))
    }

    /// The modification date, if there is no ETag.
    pub(crate) fn only_modified(&self) -> Option<&str> {
        self.modified.as_deref().filter(|_| self.etag.is_none())
    }

    /// Checks that a response belongs to this version. Servers may ignore conditions, so every response is checked.
    pub(crate) fn check(&self, headers: &HeaderMap, total: Option<u64>) -> Result<(), Failure> {
        let now = Self::of(headers, total.unwrap_or(self.size));
        // A date beside an ETag is ignored: replicas of a file have different dates.
        let same = match (&self.etag, &now.etag) {
            (None, None) => self.modified == now.modified,
            (before, now) => before == now,
        };
        if same && now.size == self.size { Ok(()) } else { Err(changed()) }
    }
}

pub(crate) fn changed() -> Failure {
    Failure::new(RemoteFault::Changed, "the file changed while it was read; open it again")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn any_difference_is_another_version() {
        let first = Version::of(&headers(&[("etag", "\"a\""), ("last-modified", "x")]), 9);
        assert!(first.check(&headers(&[("etag", "\"a\"")]), Some(9)).is_ok());
        assert!(first.check(&headers(&[("etag", "\"b\"")]), Some(9)).is_err());
        assert!(first.check(&headers(&[("etag", "\"a\"")]), Some(8)).is_err());
        assert!(first.check(&headers(&[("last-modified", "x")]), Some(9)).is_err());
        let dated = Version::of(&headers(&[("last-modified", "x")]), 9);
        assert!(dated.check(&headers(&[("last-modified", "y")]), None).is_err());
        let bare = Version::of(&HeaderMap::new(), 9);
        assert!(bare.check(&HeaderMap::new(), Some(9)).is_ok() && bare.check(&HeaderMap::new(), Some(10)).is_err());
    }

    #[test]
    fn weak_tags_are_no_condition() {
        let weak = Version::of(&headers(&[("etag", "W/\"a\""), ("last-modified", "x")]), 9);
        assert_eq!((weak.strong_etag(), weak.only_modified()), (None, None));
    }
}
