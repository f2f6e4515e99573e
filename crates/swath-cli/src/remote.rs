//! Options for servers and stores.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use swath::io::{RemoteOptions, remote};

use crate::{args::Remote, console, numbers};

impl Remote {
    /// Returns the engine's options. Messages name the option, never its value, which may be a secret.
    pub fn options(&self) -> Result<RemoteOptions> {
        let mut options = RemoteOptions::default()
            .with_anonymous(self.anonymous)
            .with_public_only(self.public_only)
            .with_allowed_hosts(self.allowed_hosts.clone());
        if let Some(endpoint) = &self.endpoint {
            options = options.with_endpoint(endpoint);
        }
        if let Some(region) = &self.region {
            options = options.with_region(region);
        }
        for header in &self.headers {
            let (name, value) =
                header.split_once(':').context("--header takes 'Name: value', and the given text has no colon")?;
            options = options.with_header(name.trim(), value.trim());
        }
        for setting in &self.settings {
            let (key, value) =
                setting.split_once('=').context("--remote-option takes KEY=VALUE, and the given text has no =")?;
            options = options.with_setting(key.trim(), value.trim());
        }
        if let Some(text) = &self.max_remote_bytes {
            options = options.with_max_bytes(numbers::bytes(text, "--max-remote-bytes")? as u64);
        }
        if let Some(requests) = self.max_remote_requests {
            options = options.with_max_requests(requests);
        }
        if let Some(seconds) = self.remote_timeout {
            let deadline = Duration::try_from_secs_f64(seconds).ok().filter(|deadline| !deadline.is_zero());
            let deadline =
                deadline.with_context(|| format!("--remote-timeout: {seconds} is not a number of seconds"))?;
            options = options.with_deadline(deadline);
        }
        if let Some(retries) = self.retries {
            options = options.with_retries(retries);
        }
        Ok(options)
    }
}

/// Returns a path or address as messages show it, without secrets.
pub fn shown(path: &Path) -> String {
    console::safe(&path.to_str().map_or_else(|| path.display().to_string(), remote::shown))
}

/// Returns an error for an address whose scheme swath does not know; an existing path is accepted whatever it looks like.
pub fn check_scheme(path: &Path) -> Result<()> {
    let Some(scheme) = scheme(path) else { return Ok(()) };
    if is_remote(path) || path.exists() {
        return Ok(());
    }
    let how = "give a path, or an address that begins with https://, http://, s3://, gs:// or az://";
    bail!("{}: swath does not know the scheme {scheme}://: {how}", shown(path))
}

/// Returns an error for an address where only a local file can be written.
pub fn check_local(path: &Path) -> Result<()> {
    if is_remote(path) || (scheme(path).is_some() && !path.exists()) {
        bail!("{}: this command writes local files only: give a path", shown(path));
    }
    Ok(())
}

fn is_remote(path: &Path) -> bool {
    path.to_str().is_some_and(remote::is_remote)
}

/// Returns the text before `://` if it can be a scheme. A single letter is a drive.
fn scheme(path: &Path) -> Option<&str> {
    let (scheme, _) = path.to_str()?.split_once("://")?;
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.');
    (scheme.len() > 1 && scheme.chars().all(fits)).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsupported_schemes_are_named() {
        let refused = check_scheme(Path::new("ftp://me:secret@host/a.tif?key=secret")).unwrap_err().to_string();
        assert!(refused.contains("ftp://host/a.tif") && refused.contains("s3://"), "{refused}");
        assert!(!refused.contains("secret"), "{refused}");
        for fine in ["a.tif", "/a//b.tif", "https://host/a.tif", "S3://bucket/a.tif", "c://a.tif", "a b://c.tif"] {
            assert!(check_scheme(Path::new(fine)).is_ok(), "{fine}");
        }
    }

    #[test]
    fn wrong_options_are_named_without_their_value() {
        let wrong = [
            Remote { headers: vec!["Authorization secret".into()], ..Remote::default() },
            Remote { settings: vec!["secret".into()], ..Remote::default() },
            Remote { remote_timeout: Some(-1.0), ..Remote::default() },
            Remote { remote_timeout: Some(0.0), ..Remote::default() },
            Remote { max_remote_bytes: Some("many".into()), ..Remote::default() },
        ];
        for remote in wrong {
            let refused = format!("{:#}", remote.options().unwrap_err());
            assert!(refused.starts_with("--") && !refused.contains("secret"), "{refused}");
        }
    }
}
