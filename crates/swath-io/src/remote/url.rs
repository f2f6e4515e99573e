//! Recognises addresses, and removes secrets from them for messages.

/// Schemes of servers and stores.
const SCHEMES: [&str; 10] = ["http", "https", "s3", "s3a", "gs", "gcs", "az", "azure", "abfs", "abfss"];

fn scheme(location: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = location.split_once("://")?;
    SCHEMES.iter().any(|known| known.eq_ignore_ascii_case(scheme)).then_some((scheme, rest))
}

/// Whether a name is an address of a server or store rather than a path.
pub fn is_remote(location: &str) -> bool {
    scheme(location).is_some()
}

/// An address for messages: without user, password, query and fragment, which may be secrets.
pub fn shown(location: &str) -> String {
    let Some((scheme, rest)) = location.split_once("://") else { return location.to_owned() };
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    if scheme.to_ascii_lowercase().starts_with("abfs") {
        // In this scheme the container precedes the account, separated by an at sign.
        return format!("{scheme}://{rest}");
    }
    let (host, slash, path) = match rest.split_once('/') {
        Some((host, path)) => (host, "/", path),
        None => (rest, "", ""),
    };
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    // The password contains an unescaped slash: everything up to the at sign may be part of it.
    let no_port = |port: &str| !port.bytes().all(|digit| digit.is_ascii_digit());
    if !host.starts_with('[') && host.split_once(':').is_some_and(|(_, port)| no_port(port)) {
        let host_and_path = rest.rsplit_once('@').map_or("…", |(_, after)| after);
        return format!("{scheme}://{host_and_path}");
    }
    format!("{scheme}://{host}{slash}{path}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_not_shown() {
        assert_eq!(shown("https://me:pass@host:81/a/b.tif?sig=x#y"), "https://host:81/a/b.tif");
        assert_eq!(shown("https://host?sig=x"), "https://host");
        assert_eq!(shown("s3://bucket/a@b.tif"), "s3://bucket/a@b.tif");
        assert_eq!(shown("a?b.tif"), "a?b.tif");
        assert_eq!(shown("https://me:pa/ss@host/x.tif"), "https://host/x.tif");
        assert_eq!(shown("https://me:pa#ss@host/x.tif"), "https://…");
        assert_eq!(shown("https://host:8080/a@b.tif"), "https://host:8080/a@b.tif");
        assert_eq!(shown("http://[::1]:80/a@b"), "http://[::1]:80/a@b");
        assert_eq!(
            shown("abfss://box@account.dfs.core.windows.net/k?sig=x"),
            "abfss://box@account.dfs.core.windows.net/k"
        );
    }

    #[test]
    fn paths_are_not_remote() {
        for name in ["a.tif", "/a/b.tif", "file:///a", "C://x", "memory://a"] {
            assert!(!is_remote(name), "{name}");
        }
        for name in ["https://h/a", "S3://b/k", "gs://b/k", "az://c/k"] {
            assert!(is_remote(name), "{name}");
        }
    }
}
