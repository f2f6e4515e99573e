//! Why a request failed, in words without secrets: no address beyond the host, no header, no query.

use std::fmt;

use http::{HeaderMap, StatusCode};

use crate::fault::RemoteFault;
use crate::{sink::SinkError, source::SourceError};

/// Longest text of a server that is shown.
const LONGEST: usize = 200;

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) fault: RemoteFault,
    pub(crate) detail: String,
}

impl Failure {
    pub(crate) fn new(fault: RemoteFault, detail: impl Into<String>) -> Self {
        Self { fault, detail: detail.into() }
    }

    /// The failure for a response with this status.
    pub(crate) fn of_status(status: StatusCode, server_error: Option<&ServerError>) -> Self {
        let words = server_error.map(ServerError::words).unwrap_or_default();
        let answer = format!("the server answered {status}{words}");
        let (fault, hint) = match status.as_u16() {
            404 | 410 => (RemoteFault::Missing, "; is the address right?"),
            401 | 403 => (
                RemoteFault::Denied,
                "; check the credentials and the region, or use no credentials (anonymous) if the data is public",
            ),
            412 => (RemoteFault::Changed, "; the file changed while it was read: open it again"),
            300..=399 => (RemoteFault::Protocol, "; this redirect is not followed"),
            400 => (RemoteFault::Protocol, "; check the region and the endpoint"),
            500.. | 408 | 429 => (RemoteFault::Unavailable, ""),
            _ => (RemoteFault::Protocol, ""),
        };
        let region = server_error.and_then(|server_error| server_error.region.as_deref());
        let hint = match region {
            Some(region) => format!("; the bucket is in region {region}: give that region"),
            None => hint.to_owned(),
        };
        Self::new(fault, format!("{answer}{hint}"))
    }

    /// The failure for an error of object_store: our own failure inside it, if there is one.
    pub(crate) fn of_store(error: &object_store::Error) -> Self {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        let mut innermost = None;
        while let Some(found) = cause {
            if let Some(failure) = found.downcast_ref::<Self>() {
                return failure.clone();
            }
            innermost = Some(found);
            cause = found.source();
        }
        use object_store::Error as Store;
        let fault = match error {
            Store::NotFound { .. } => RemoteFault::Missing,
            Store::PermissionDenied { .. } | Store::Unauthenticated { .. } => RemoteFault::Denied,
            Store::Precondition { .. } | Store::NotModified { .. } | Store::AlreadyExists { .. } => {
                RemoteFault::Changed
            }
            _ => RemoteFault::Setup,
        };
        let words = innermost.map(|cause| printable(&unquoted(&cause.to_string()))).unwrap_or_default();
        Self::new(fault, format!("the store cannot be used: {words}"))
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Failure {}

impl From<Failure> for SourceError {
    fn from(failure: Failure) -> Self {
        Self::Remote { fault: failure.fault, detail: failure.detail }
    }
}

impl From<Failure> for SinkError {
    fn from(failure: Failure) -> Self {
        Self::Remote { fault: failure.fault, detail: failure.detail }
    }
}

/// A server's description of an error, as far as it may be shown.
#[derive(Debug, Clone, Default)]
pub(crate) struct ServerError {
    pub(crate) code: Option<String>,
    message: Option<String>,
    region: Option<String>,
}

impl ServerError {
    /// Reads the code and message of a store's error. A server may repeat what it was sent, in any spelling: if that held secrets, only
    /// a code that is one word, and part of no secret, is kept.
    pub(crate) fn of(headers: &HeaderMap, body: &[u8], secrets: &[&str]) -> Self {
        let text = String::from_utf8_lossy(body);
        let element = |name: &str| element(&text, name).map(printable).filter(|words| !words.is_empty());
        let header = |name: &str| headers.get(name)?.to_str().ok().map(printable);
        let is_word = |word: &String| {
            let plain = word.len() <= 60 && word.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '-');
            plain && !secrets.iter().any(|secret| secret.contains(word.as_str()))
        };
        Self {
            code: element("Code").or_else(|| header("x-ms-error-code")).filter(is_word),
            message: element("Message").filter(|_| secrets.is_empty()),
            region: header("x-amz-bucket-region").or_else(|| element("Region")).filter(is_word),
        }
    }

    /// The description in parentheses, for the end of a sentence.
    pub(crate) fn words(&self) -> String {
        match (&self.code, &self.message) {
            (Some(code), Some(message)) => format!(" ({code}: {message})"),
            (Some(words), None) | (None, Some(words)) => format!(" ({words})"),
            (None, None) => String::new(),
        }
    }
}

/// The content of the first XML element of this name. Responses of stores are short and flat.
pub(crate) fn element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    Some(rest.split_once(&format!("</{name}>"))?.0)
}

/// Removes the text between the first and the last quote: parsers quote their input, which may be a secret and contain quotes.
fn unquoted(words: &str) -> String {
    const QUOTES: [char; 2] = ['"', '`'];
    match (words.find(QUOTES), words.rfind(QUOTES)) {
        (Some(first), Some(last)) => {
            let end = if first == last { "" } else { words.get(last + 1..).unwrap_or_default() };
            format!("{}…{end}", words.get(..first).unwrap_or_default())
        }
        _ => words.to_owned(),
    }
}

/// Untrusted text on one line, without control characters.
pub(crate) fn printable(words: &str) -> String {
    let clean = words.chars().map(|letter| if letter.is_control() || letter.is_whitespace() { ' ' } else { letter });
    let short: String = clean.take(LONGEST).collect();
    short.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_servers_are_shortened_and_cleaned() {
        let body = format!("<Error><Code>No\u{1b}[31m</Code><Message>\u{1b}{}</Message></Error>", "x".repeat(1000));
        let server_error = ServerError::of(&HeaderMap::new(), body.as_bytes(), &[]);
        assert_eq!(server_error.code, None, "a code is one word");
        assert_eq!(server_error.message.map(|message| message.len()), Some(LONGEST - 1));
    }

    #[test]
    fn secrets_that_a_server_repeats_are_left_out() {
        let body = b"<Error><Code>Denied</Code><Message>you sent sig=abcdef</Message></Error>";
        let server_error = ServerError::of(&HeaderMap::new(), body, &["sig=abcdef"]);
        assert_eq!(server_error.words(), " (Denied)");
        for body in [&b"<Code>sig=abcdef</Code>"[..], b"<Code>abcdef</Code>", b"<Message>se=1&amp;sig</Message>"] {
            assert_eq!(ServerError::of(&HeaderMap::new(), body, &["se=1&sig=abcdef"]).words(), "");
        }
    }

    #[test]
    fn quotes_of_parsers_are_left_out() {
        assert_eq!(
            unquoted("invalid type: string \"the \\\"key\\\"\", expected a map"),
            "invalid type: string …, expected a map"
        );
        assert_eq!(unquoted("no end \"secret"), "no end …");
        assert_eq!(unquoted("plain"), "plain");
    }

    #[test]
    fn a_wrong_region_names_the_right_one() {
        let body = b"<Error><Code>AuthorizationHeaderMalformed</Code><Region>eu-west-3</Region></Error>";
        let server_error = ServerError::of(&HeaderMap::new(), body, &[]);
        let failure = Failure::of_status(StatusCode::BAD_REQUEST, Some(&server_error));
        assert!(failure.detail.contains("region eu-west-3"), "{failure}");
    }
}
