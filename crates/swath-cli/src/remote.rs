//! How servers and stores are asked, as the command line says it.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail};
use clap::Args as ClapArgs;
use swath::{RemoteOptions, remote};

use crate::{console, job};

/// Files behind a network.
#[derive(Debug, Clone, Default, ClapArgs)]
#[command(next_help_heading = "Remote")]
pub struct Remote {
    /// Ask stores without credentials, as public buckets allow.
    #[arg(long, alias = "no-sign-request")]
    pub anonymous: bool,
    /// The store's server, where it is not its maker's own: an S3-compatible one, or an emulator.
    #[arg(long, value_name = "URL")]
    pub endpoint: Option<String>,
    /// The bucket's region, where the store wants to know.
    #[arg(long, value_name = "NAME")]
    pub region: Option<String>,
    /// A header for every request to a plain HTTP server, as in 'Name: value'; may be given again.
    #[arg(long = "header", value_name = "NAME: VALUE")]
    pub headers: Vec<String>,
    /// A setting of the store by its usual name, as in aws_profile=dev; may be given again.
    #[arg(long = "remote-option", value_name = "KEY=VALUE")]
    pub settings: Vec<String>,
    /// Bytes that may come in for each raster, as in 64M; more is an error.
    #[arg(long, value_name = "BYTES")]
    pub max_remote_bytes: Option<String>,
    /// Requests that may be sent for each raster; more is an error.
    #[arg(long, value_name = "N")]
    pub max_remote_requests: Option<u64>,
    /// Longest time that one request may take, all its attempts together; of an upload, longest time without progress.
    #[arg(long, value_name = "SECONDS")]
    pub remote_timeout: Option<f64>,
    /// How often a request that failed through no fault of ours is sent again.
    #[arg(long, value_name = "N")]
    pub retries: Option<u32>,
    /// Refuse private, loopback and link-local addresses, of endpoints too.
    #[arg(long)]
    pub public_only: bool,
    /// A host that may be asked although its address is private, as in name or name:port; may be given again.
    #[arg(long = "allow-host", value_name = "HOST")]
    pub allowed_hosts: Vec<String>,
}

impl Remote {
    /// The same as the engine has it. Messages name the option, never its value, which may be a secret.
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
            let (name, value) = header
                .split_once(':')
                .context("--header takes 'Name: value', and there is no colon in what is given")?;
            options = options.with_header(name.trim(), value.trim());
        }
        for setting in &self.settings {
            let (key, value) = setting
                .split_once('=')
                .context("--remote-option takes KEY=VALUE, and there is no = in what is given")?;
            options = options.with_setting(key.trim(), value.trim());
        }
        if let Some(text) = &self.max_remote_bytes {
            options = options.with_max_bytes(job::bytes(text, "--max-remote-bytes")? as u64);
        }
        if let Some(requests) = self.max_remote_requests {
            options = options.with_max_requests(requests);
        }
        if let Some(seconds) = self.remote_timeout {
            let deadline = Duration::try_from_secs_f64(seconds).ok().filter(|deadline| !deadline.is_zero());
            let deadline = deadline.with_context(|| format!("--remote-timeout: {seconds} is no number of seconds"))?;
            options = options.with_deadline(deadline);
        }
        if let Some(retries) = self.retries {
            options = options.with_retries(retries);
        }
        Ok(options)
    }
}

/// A path or address as messages show it: without what may be secret.
pub fn shown(path: &Path) -> String {
    console::safe(&path.to_str().map_or_else(|| path.display().to_string(), remote::shown))
}

/// Refuses what looks like an address and leads nowhere; a path that exists is a path, whatever it looks like.
pub fn check_scheme(path: &Path) -> Result<()> {
    let Some(scheme) = scheme(path) else { return Ok(()) };
    if is_remote(path) || path.exists() {
        return Ok(());
    }
    let how = "give a path, or an address that begins with https://, http://, s3://, gs:// or az://";
    bail!("{}: {scheme}:// is no scheme that swath knows: {how}", shown(path))
}

/// Refuses an address where only a file of this machine can be written.
pub fn check_local(path: &Path) -> Result<()> {
    if is_remote(path) || (scheme(path).is_some() && !path.exists()) {
        bail!("{}: this is written to files of this machine only: give a path", shown(path));
    }
    Ok(())
}

fn is_remote(path: &Path) -> bool {
    path.to_str().is_some_and(remote::is_remote)
}

/// What stands before `://`, if it is of the kind that schemes are of. A single letter is a drive.
fn scheme(path: &Path) -> Option<&str> {
    let (scheme, _) = path.to_str()?.split_once("://")?;
    let fits = |char: char| char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.');
    (scheme.len() > 1 && scheme.chars().all(fits)).then_some(scheme)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn schemes_that_nobody_serves_are_named() {
        let refused = check_scheme(Path::new("ftp://me:secret@host/a.tif?key=secret")).unwrap_err().to_string();
        assert!(refused.contains("ftp://host/a.tif") && refused.contains("s3://"), "{refused}");
        assert!(!refused.contains("secret"), "{refused}");
        for fine in ["a.tif", "/a//b.tif", "https://host/a.tif", "S3://bucket/a.tif", "c://a.tif", "a b://c.tif"] {
            assert!(check_scheme(Path::new(fine)).is_ok(), "{fine}");
        }
    }

    #[test]
    fn what_is_wrong_is_named_without_its_value() {
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
