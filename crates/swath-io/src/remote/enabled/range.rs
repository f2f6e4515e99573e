//! Checks that a response is the requested range.

use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE},
};

/// Longest accepted body that is not a range: listings, responses of stores.
const WHOLE: u64 = 8 << 20;
/// Longest accepted body that describes an error.
const ERROR: u64 = 64 << 10;

/// The range of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RequestedRange {
    start: u64,
    /// The last byte.
    end: u64,
}

impl RequestedRange {
    /// The range of a request, if it has one with both ends.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let (start, end) = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        let requested = Self { start: start.parse().ok()?, end: end.parse().ok()? };
        (requested.start <= requested.end).then_some(requested)
    }

    pub(crate) fn len(self) -> u64 {
        (self.end - self.start).saturating_add(1)
    }
}

/// A `Content-Range` header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// First and last byte; `None` if the range is not available.
    pub(crate) span: Option<(u64, u64)>,
    /// Size of the whole file, if the server states it.
    pub(crate) total: Option<u64>,
}

impl ContentRange {
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let value = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim();
        let (unit, value) = value.split_once(' ')?;
        let (span, total) = value.trim().split_once('/')?;
        let total = if total == "*" { None } else { Some(number(total)?) };
        let span = match span {
            "*" => None,
            span => {
                let (start, end) = span.split_once('-')?;
                Some((number(start)?, number(end)?))
            }
        };
        unit.eq_ignore_ascii_case("bytes").then_some(Self { span, total })
    }
}

/// Parses digits only; `parse` would also accept a sign.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// How much of a body to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BodyLimits {
    /// Required length. A shorter body means that the connection broke.
    pub(crate) exact: Option<u64>,
    /// Greatest length.
    pub(crate) most: u64,
    /// Whether a longer body may be cut.
    pub(crate) cut: bool,
}

/// Why a response is not the requested range.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The server ignores ranges and sends the whole file.
    Ignored,
    /// The response contradicts the request or itself.
    Wrong(String),
}

/// How much of a response's body to read, if the response fits the request.
pub(crate) fn body_limits(
    status: StatusCode,
    headers: &HeaderMap,
    requested: Option<RequestedRange>,
) -> Result<BodyLimits, Mismatch> {
    if !status.is_success() {
        return Ok(BodyLimits { exact: None, most: ERROR, cut: true });
    }
    let Some(requested) = requested else { return Ok(BodyLimits { exact: None, most: WHOLE, cut: false }) };
    let wrong = |what: String| Err(Mismatch::Wrong(what));
    if let Some(encoding) = headers.get(CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return wrong(format!("compressed its response ({encoding:?}), which makes byte ranges useless"));
    }
    let length = match headers.get(CONTENT_LENGTH) {
        None => None,
        Some(value) => match value.to_str().ok().and_then(number) {
            Some(length) => Some(length),
            None => return wrong("sent a Content-Length that is not a number".to_owned()),
        },
    };
    match status {
        StatusCode::PARTIAL_CONTENT => {}
        // A whole file that is no longer than the requested range is acceptable.
        StatusCode::OK if requested.start == 0 && length.is_none_or(|length| length <= requested.len()) => {
            return Ok(BodyLimits { exact: length, most: requested.len(), cut: false });
        }
        StatusCode::OK => return Err(Mismatch::Ignored),
        other => return wrong(format!("answered {other} to a request for a range")),
    }
    let multipart = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/"));
    let Some(ContentRange { span: Some((start, end)), total }) = ContentRange::of(headers) else {
        return wrong("sent a part without stating its range (Content-Range)".to_owned());
    };
    if multipart {
        return wrong("sent several parts where one was requested".to_owned());
    }
    let last = total.map_or(requested.end, |total| requested.end.min(total.saturating_sub(1)));
    if start != requested.start || end != last || end < start {
        let RequestedRange { start: from, end: to } = requested;
        return wrong(format!("sent bytes {start} to {end} where {from} to {to} were requested"));
    }
    let len = end - start + 1;
    if let Some(length) = length
        && length != len
    {
        return wrong(format!("sent {length} bytes (Content-Length) as a range of {len}"));
    }
    Ok(BodyLimits { exact: Some(len), most: len, cut: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn ask(status: u16, pairs: &[(&'static str, &str)]) -> Result<BodyLimits, Mismatch> {
        let requested = RequestedRange::of(&headers(&[("range", "bytes=0-99")]));
        body_limits(StatusCode::from_u16(status).unwrap(), &headers(pairs), requested)
    }

    #[test]
    fn matching_ranges_are_accepted() {
        assert_eq!(ask(206, &[("content-range", "bytes 0-99/500")]).unwrap().exact, Some(100));
        assert_eq!(ask(206, &[("content-range", "bytes 0-99/*"), ("content-length", "100")]).unwrap().exact, Some(100));
        assert_eq!(ask(206, &[("content-range", "bytes 0-41/42")]).unwrap().exact, Some(42), "cut at the end");
        assert_eq!(ask(200, &[("content-length", "100")]).unwrap().exact, Some(100), "a small file, whole");
        assert_eq!(ask(200, &[]).unwrap(), BodyLimits { exact: None, most: 100, cut: false });
    }

    #[test]
    fn other_ranges_are_refused() {
        for pairs in [
            &[][..],
            &[("content-range", "bytes 1-100/500")],
            &[("content-range", "bytes 0-98/500")],
            &[("content-range", "bytes 0-99/50")],
            &[("content-range", "bytes +0-99/500")],
            &[("content-range", "bytes 0-99")],
            &[("content-range", "bytes */500")],
            &[("content-range", "bytes 0-99/500"), ("content-length", "101")],
            &[("content-range", "bytes 0-99/500"), ("content-encoding", "gzip")],
            &[("content-range", "bytes 0-99/500"), ("content-type", "multipart/byteranges; boundary=x")],
        ] {
            assert!(matches!(ask(206, pairs), Err(Mismatch::Wrong(_))), "{pairs:?}");
        }
        assert!(matches!(ask(204, &[]), Err(Mismatch::Wrong(_))));
        assert_eq!(ask(200, &[("content-length", "101")]), Err(Mismatch::Ignored));
    }
}
