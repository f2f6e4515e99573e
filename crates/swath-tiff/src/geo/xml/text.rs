//! Character sets and escapes, resolved as GDAL resolves them.

use std::borrow::Cow;

use crate::geo::{
    problems::Problems,
    xml::bounds::{Bounds, XmlError},
};

/// Decodes bytes up to the first NUL, without a byte order mark. Bytes that are not UTF-8 are read as Latin-1.
///
/// GDAL's tag is a C string, so nothing after a NUL counts. Older writers stored Latin-1, and GDAL passes such bytes on unchanged.
/// This function replaces such bytes one by one, so that the UTF-8 in the rest of the document stays right and `caf\xe9` becomes `café`.
pub(crate) fn decode<'a>(bytes: &'a [u8], bounds: Bounds, problems: &mut Problems) -> Result<Cow<'a, str>, XmlError> {
    let limit = bounds.bytes.min(u32::MAX as usize / 2); // decoding Latin-1 may double the length, and the tree uses u32 offsets
    if bytes.len() > limit {
        return Err(XmlError::TooLong { len: bytes.len(), limit });
    }
    let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
    let (bytes, rest) = match bytes.iter().position(|&byte| byte == 0) {
        Some(end) => bytes.split_at(end),
        None => (bytes, &[][..]),
    };
    if rest.iter().any(|&byte| byte != 0) {
        problems.add(|| format!("{} bytes after a NUL at byte {} were not read", rest.len(), bytes.len()));
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
    problems.add(|| format!("{replaced} bytes are not UTF-8 and were read as Latin-1"));
    Ok(Cow::Owned(text))
}

/// Resolves `&lt; &gt; &amp; &apos; &quot; &#n; &#xh;` as GDAL does. Returns `true` if the text was cut.
///
/// Like GDAL, this drops everything from an escape that it cannot read (`a & b` becomes `a `), since that is the value GDAL's users
/// see; the caller reports it. `&#0;` and `&#;` vanish, and a number that is not a character becomes U+FFFD (GDAL passes lone
/// surrogates on as invalid UTF-8, which a `str` cannot hold).
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
