//! Whether an answer is the range that was asked for.

use http::{
    HeaderMap, StatusCode,
    header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE},
};

/// Most that is taken of a body that is no range: listings, answers of stores.
const WHOLE: u64 = 8 << 20;
/// Most that is taken of a body that tells of an error.
const ERROR: u64 = 64 << 10;

/// A range that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    start: u64,
    /// The last byte of it.
    end: u64,
}

impl Asked {
    /// The range of a request, where it has one with both ends.
    pub(crate) fn of(headers: &HeaderMap) -> Option<Self> {
        let (start, end) = headers.get(RANGE)?.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
        let asked = Self { start: start.parse().ok()?, end: end.parse().ok()? };
        (asked.start <= asked.end).then_some(asked)
    }

    pub(crate) fn len(self) -> u64 {
        (self.end - self.start).saturating_add(1)
    }
}

/// What a `Content-Range` says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ContentRange {
    /// First and last byte; none where the range could not be had.
    pub(crate) span: Option<(u64, u64)>,
    /// Size of the whole, where the server tells it.
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

/// Digits only: `parse` would also take a sign.
fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// How much of a body is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// It must be this long; shorter is a connection that was cut.
    pub(crate) exact: Option<u64>,
    /// Never more than this.
    pub(crate) most: u64,
    /// Whether the rest may simply be left.
    pub(crate) cut: bool,
}

/// Why an answer is not the range.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Mismatch {
    /// The server gives the whole file instead; it always will.
    Ignored,
    /// The answer contradicts the request or itself.
    Wrong(String),
}

/// What to take of the body of an answer, if the answer fits the request.
pub(crate) fn plan(status: StatusCode, headers: &HeaderMap, asked: Option<Asked>) -> Result<Plan, Mismatch> {
    if !status.is_success() {
        return Ok(Plan { exact: None, most: ERROR, cut: true });
    }
    let Some(asked) = asked else { return Ok(Plan { exact: None, most: WHOLE, cut: false }) };
    let wrong = |what: String| Err(Mismatch::Wrong(what));
    if let Some(encoding) = headers.get(CONTENT_ENCODING)
        && !encoding.as_bytes().eq_ignore_ascii_case(b"identity")
    {
        return wrong(format!("encoded its answer ({encoding:?}), which no byte range survives"));
    }
    let length = match headers.get(CONTENT_LENGTH) {
        None => None,
        Some(value) => match value.to_str().ok().and_then(number) {
            Some(length) => Some(length),
            None => return wrong("gave no number as Content-Length".to_owned()),
        },
    };
    match status {
        StatusCode::PARTIAL_CONTENT => {}
        // A whole file that is no longer than what was asked for is an answer.
        StatusCode::OK if asked.start == 0 && length.is_none_or(|length| length <= asked.len()) => {
            return Ok(Plan { exact: length, most: asked.len(), cut: false });
        }
        StatusCode::OK => return Err(Mismatch::Ignored),
        other => return wrong(format!("answered {other} to a request for a range")),
    }
    let multipart = headers.get(CONTENT_TYPE).is_some_and(|kind| kind.as_bytes().starts_with(b"multipart/"));
    let Some(ContentRange { span: Some((start, end)), total }) = ContentRange::of(headers) else {
        return wrong("sent a part without saying which (Content-Range)".to_owned());
    };
    if multipart {
        return wrong("sent several parts where one was asked for".to_owned());
    }
    let last = total.map_or(asked.end, |total| asked.end.min(total.saturating_sub(1)));
    if start != asked.start || end != last || end < start {
        let Asked { start: from, end: to } = asked;
        return wrong(format!("sent bytes {start} to {end} where {from} to {to} were asked for"));
    }
    let len = end - start + 1;
    if let Some(length) = length
        && length != len
    {
        return wrong(format!("sent {length} bytes (Content-Length) as a range of {len}"));
    }
    Ok(Plan { exact: Some(len), most: len, cut: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn ask(status: u16, pairs: &[(&'static str, &str)]) -> Result<Plan, Mismatch> {
        let asked = Asked::of(&headers(&[("range", "bytes=0-99")]));
        plan(StatusCode::from_u16(status).unwrap(), &headers(pairs), asked)
    }

    #[test]
    fn ranges_that_fit_are_taken() {
        assert_eq!(ask(206, &[("content-range", "bytes 0-99/500")]).unwrap().exact, Some(100));
        assert_eq!(ask(206, &[("content-range", "bytes 0-99/*"), ("content-length", "100")]).unwrap().exact, Some(100));
        assert_eq!(ask(206, &[("content-range", "bytes 0-41/42")]).unwrap().exact, Some(42), "cut at the end");
        assert_eq!(ask(200, &[("content-length", "100")]).unwrap().exact, Some(100), "a small file, whole");
        assert_eq!(ask(200, &[]).unwrap(), Plan { exact: None, most: 100, cut: false });
    }

    #[test]
    fn ranges_that_do_not_are_not() {
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
