//! Settings of stores in layers: the caller's take precedence over the environment's, and those over the ones in files.

use url::Url;

use super::{credentials::Environment, failure::Failure};
use crate::fault::RemoteFault;
use crate::remote::options::RemoteOptions;

/// Settings. Of several values for a key, the first one added counts.
pub(crate) struct Layers<K>(pub(crate) Vec<(K, String)>);

impl<K: PartialEq + Copy + std::str::FromStr> Layers<K> {
    pub(crate) fn get(&self, key: K) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    pub(crate) fn is_set(&self, key: K) -> bool {
        self.get(key).is_some_and(truthy)
    }

    pub(crate) fn add(&mut self, key: K, value: impl Into<String>) {
        if self.get(key).is_none() {
            // Secrets from mounted files often end with a line break.
            self.0.push((key, value.into().trim().to_owned()));
        }
    }

    pub(crate) fn add_some(&mut self, key: K, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    /// Checks that every setting is text that a request can carry.
    pub(crate) fn checked(self) -> Result<Self, Failure>
    where
        K: AsRef<str>,
    {
        match self.0.iter().find(|(_, value)| value.chars().any(char::is_control)) {
            Some((key, _)) => Err(setup(format!("setting {} has characters that no request can carry", key.as_ref()))),
            None => Ok(self),
        }
    }

    pub(crate) fn has_any(&self, keys: &[K]) -> bool {
        self.0.iter().any(|(key, _)| keys.contains(key))
    }

    /// Adds the variables whose names begin with `prefix`. Credentials must all come from one source: with
    /// `has_credentials`, those of the environment are skipped.
    pub(crate) fn add_environment(
        &mut self,
        prefix: &str,
        environment: &Environment,
        credentials: &[K],
        has_credentials: bool,
    ) {
        for (name, value) in environment.iter().filter(|(name, _)| name.starts_with(prefix)) {
            if let Ok(key) = name.to_ascii_lowercase().parse()
                && !(has_credentials && credentials.contains(&key))
            {
                self.add(key, value);
            }
        }
    }

    /// Adds the caller's settings, except those of other stores, which are for other addresses.
    pub(crate) fn add_settings(&mut self, options: &RemoteOptions, special: &[&str]) -> Result<(), Failure> {
        const STORES: [&str; 4] = ["aws_", "azure_", "google_", "gs_"];
        for (name, value) in &options.settings {
            let name = name.to_ascii_lowercase();
            match name.parse() {
                Ok(key) => self.add(key, value),
                Err(_) if special.contains(&name.as_str()) => {}
                Err(_) if STORES.iter().any(|store| name.starts_with(store)) => {}
                Err(_) => return Err(setup(format!("no store has a setting {name:?}"))),
            }
        }
        Ok(())
    }
}

pub(crate) fn setting<'a>(options: &'a RemoteOptions, names: &[&str]) -> Option<&'a str> {
    let found = options.settings.iter().find(|(name, _)| names.iter().any(|wanted| name.eq_ignore_ascii_case(wanted)));
    found.map(|(_, value)| value.as_str())
}

pub(crate) fn truthy(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

pub(crate) fn endpoint(address: &str) -> Result<String, Failure> {
    let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    match url {
        Some(_) => Ok(address.trim_end_matches('/').to_owned()),
        None => Err(setup("an endpoint is an address that begins with http:// or https://")),
    }
}

/// Checks a name that becomes part of a host or path, so that it cannot end either.
pub(crate) fn check_name(kind: &str, name: &str, allowed: impl Fn(char) -> bool) -> Result<(), Failure> {
    let fine = name.len() >= 2 && name.len() <= 255 && name.chars().all(allowed) && !name.contains("..");
    if fine { Ok(()) } else { Err(setup(format!("{name:?} is not a valid {kind} name"))) }
}

pub(crate) fn bucket_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_')
}

pub(crate) fn setup(detail: impl Into<String>) -> Failure {
    Failure::new(RemoteFault::Setup, detail)
}
