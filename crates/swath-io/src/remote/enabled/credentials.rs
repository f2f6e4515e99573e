//! Reads profiles from the files of the AWS tools: keys, region and endpoint.

use std::{collections::BTreeMap, path::PathBuf};

use super::failure::Failure;
use crate::fault::RemoteFault;

/// Environment variables by name.
pub(crate) type Environment = BTreeMap<String, String>;

/// The variables of this process that are text and not empty.
pub(crate) fn environment() -> Environment {
    let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
        Some((name.into_string().ok()?, value.into_string().ok().filter(|value| !value.is_empty())?))
    };
    std::env::vars_os().filter_map(text).collect()
}

/// Entries which say that the keys must be fetched.
const FETCHED: [&str; 6] =
    ["sso_session", "sso_start_url", "role_arn", "credential_process", "login_session", "web_identity_token_file"];

/// One profile.
#[derive(Default)]
pub(crate) struct Profile {
    name: String,
    entries: BTreeMap<String, String>,
}

/// The keys of a profile.
pub(crate) struct Keys {
    pub(crate) id: String,
    pub(crate) secret: String,
    pub(crate) token: Option<String>,
}

impl Profile {
    /// Loads the profile that the caller or the environment names, or the default one.
    pub(crate) fn load(wanted: Option<&str>, environment: &Environment) -> Result<Self, Failure> {
        let by_environment = || environment.get("AWS_PROFILE").or_else(|| environment.get("AWS_DEFAULT_PROFILE"));
        let wanted = wanted.or_else(|| by_environment().map(String::as_str));
        let name = wanted.unwrap_or("default");
        let file = |variable: &str, usual: &str| {
            let home = || environment.get("HOME").or_else(|| environment.get("USERPROFILE"));
            let path = match environment.get(variable) {
                Some(path) => PathBuf::from(path),
                None => PathBuf::from(home()?).join(".aws").join(usual),
            };
            // A missing or unreadable file counts as empty.
            std::fs::read_to_string(path).ok()
        };
        let mut entries = BTreeMap::new();
        let mut found = false;
        let config = file("AWS_CONFIG_FILE", "config").unwrap_or_default();
        for section in [format!("profile {name}"), name.to_owned()] {
            // Only the default profile may omit the word `profile`.
            if section == *name && name != "default" {
                continue;
            }
            found |= read_section(&config, &section, &mut entries);
        }
        let credentials = file("AWS_SHARED_CREDENTIALS_FILE", "credentials").unwrap_or_default();
        found |= read_section(&credentials, name, &mut entries);
        if !found && wanted.is_some() {
            let detail = format!(
                "there is no profile {name:?} in the AWS configuration; `aws configure list-profiles` lists them"
            );
            return Err(Failure::new(RemoteFault::Setup, detail));
        }
        Ok(Self { name: name.to_owned(), entries })
    }

    pub(crate) fn get(&self, entry: &str) -> Option<&str> {
        self.entries.get(entry).map(String::as_str)
    }

    /// The keys that the profile holds, if any.
    pub(crate) fn keys(&self) -> Result<Option<Keys>, Failure> {
        if let (Some(id), Some(secret)) = (self.get("aws_access_key_id"), self.get("aws_secret_access_key")) {
            let token = self.get("aws_session_token").map(str::to_owned);
            return Ok(Some(Keys { id: id.to_owned(), secret: secret.to_owned(), token }));
        }
        match FETCHED.iter().find(|entry| self.get(entry).is_some()) {
            None => Ok(None),
            Some(entry) => Err(Failure::new(
                RemoteFault::Setup,
                format!(
                    "profile {:?} must fetch its keys ({entry}), which swath does not do; let the AWS tools fetch them: \
                     eval \"$(aws configure export-credentials --profile {} --format env)\"",
                    self.name, self.name
                ),
            )),
        }
    }
}

/// Adds the entries of one section, and returns whether the section exists.
fn read_section(text: &str, wanted: &str, entries: &mut BTreeMap<String, String>) -> bool {
    let (mut found, mut inside) = (false, false);
    for line in text.lines() {
        // Indented lines belong to the entry above, which is not used.
        if line.starts_with([' ', '\t', '#', ';']) {
            continue;
        }
        if let Some(section) = line.trim_end().strip_prefix('[').and_then(|line| line.split(']').next()) {
            inside = section.split_whitespace().eq(wanted.split_whitespace());
            found |= inside;
        } else if let Some((name, value)) = line.split_once('=').filter(|_| inside) {
            let value = value.split(" #").next().unwrap_or_default().trim();
            entries.insert(name.trim().to_ascii_lowercase(), value.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(config: &str, credentials: &str, wanted: Option<&str>) -> Result<Profile, Failure> {
        let folder = std::env::temp_dir().join(format!(
            "swath-profiles-{}-{:?}",
            std::process::id(),
            std::thread::current().id()
        ));
        std::fs::create_dir_all(folder.join(".aws")).unwrap();
        std::fs::write(folder.join(".aws/config"), config).unwrap();
        std::fs::write(folder.join("keys"), credentials).unwrap();
        let environment = Environment::from([
            ("HOME".to_owned(), folder.display().to_string()),
            ("AWS_SHARED_CREDENTIALS_FILE".to_owned(), folder.join("keys").display().to_string()),
        ]);
        let profile = Profile::load(wanted, &environment);
        std::fs::remove_dir_all(folder).unwrap();
        profile
    }

    #[test]
    fn keys_and_region_come_from_both_files() {
        let config =
            "[default]\nregion = eu-west-1\n[profile b]\nregion=us-west-2\nendpoint_url = http://h:1\ns3 =\n  x = y\n";
        let credentials = "[default]\naws_access_key_id=A\naws_secret_access_key = S\n\n[ b ]\naws_access_key_id = B\n\
                           aws_secret_access_key = T=\naws_session_token = U\n";
        let first = profile(config, credentials, None).unwrap();
        assert_eq!((first.get("region"), first.keys().unwrap().unwrap().id.as_str()), (Some("eu-west-1"), "A"));
        let second = profile(config, credentials, Some("b")).unwrap();
        let keys = second.keys().unwrap().unwrap();
        assert_eq!((keys.id.as_str(), keys.secret.as_str(), keys.token.as_deref()), ("B", "T=", Some("U")));
        assert_eq!((second.get("region"), second.get("endpoint_url")), (Some("us-west-2"), Some("http://h:1")));
    }

    #[test]
    fn profiles_that_cannot_be_used_say_what_to_do() {
        let missing = profile("", "", Some("c")).err().unwrap();
        assert!(missing.detail.contains("no profile \"c\""), "{missing}");
        let fetched = profile("[profile c]\nsso_session = s\n", "", Some("c")).unwrap().keys().err().unwrap();
        assert!(fetched.detail.contains("export-credentials --profile c"), "{fetched}");
        assert!(profile("", "", None).unwrap().keys().unwrap().is_none());
    }
}
