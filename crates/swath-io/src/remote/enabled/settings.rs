//! The settings of each store: its address and credentials, under the names that callers and environments use.

use object_store::{
    aws::AmazonS3ConfigKey as S3Key, azure::AzureConfigKey as AzureKey, gcp::GoogleConfigKey as GcsKey,
};
use url::{Host, Url};

use super::{
    credentials::{Environment, Profile},
    failure::Failure,
    layers::{Layers, bucket_letter, check_name, endpoint, setting, setup, truthy},
};
use crate::remote::options::RemoteOptions;

pub(crate) fn s3_layers(
    bucket: &str,
    options: &RemoteOptions,
    environment: &Environment,
) -> Result<Layers<S3Key>, Failure> {
    const CREDENTIALS: [S3Key; 5] =
        [S3Key::AccessKeyId, S3Key::SecretAccessKey, S3Key::Token, S3Key::WebIdentityTokenFile, S3Key::SkipSignature];
    check_name("bucket", bucket, bucket_letter)?;
    let mut layers = Layers(vec![(S3Key::Bucket, bucket.to_owned())]);
    let no_sign = setting(options, &["aws_no_sign_request", "no_sign_request"]);
    if options.anonymous || no_sign.is_some_and(truthy) {
        layers.add(S3Key::SkipSignature, "true");
    }
    layers.add_some(S3Key::Region, options.region.clone());
    layers.add_some(S3Key::Endpoint, options.endpoint.clone());
    layers.add_some(S3Key::Endpoint, setting(options, &["aws_endpoint_url_s3"]));
    layers.add_settings(options, &["aws_no_sign_request", "no_sign_request", "aws_profile", "profile"])?;
    let profile = setting(options, &["aws_profile", "profile"]);
    let variable = |name: &str| environment.get(name).map(String::as_str);
    // A caller who names a profile or keys has chosen the credentials.
    let has_credentials = profile.is_some() || layers.has_any(&CREDENTIALS);
    layers.add_some(S3Key::Endpoint, variable("AWS_ENDPOINT_URL_S3"));
    layers.add_environment("AWS_", environment, &CREDENTIALS, has_credentials);
    // GDAL's names for the same settings.
    if let Some(host) = variable("AWS_S3_ENDPOINT") {
        let plain = variable("AWS_HTTPS").is_some_and(|value| !truthy(value));
        let scheme = if host.contains("://") {
            ""
        } else if plain {
            "http://"
        } else {
            "https://"
        };
        layers.add(S3Key::Endpoint, format!("{scheme}{host}"));
    }
    if !has_credentials && variable("AWS_NO_SIGN_REQUEST").is_some_and(truthy) {
        layers.add(S3Key::SkipSignature, "true");
    }
    add_profile(&mut layers, profile, environment)?;
    layers.add_some(S3Key::Region, layers.get(S3Key::DefaultRegion).map(str::to_owned));
    layers.add(S3Key::Region, "us-east-1");
    check_name("region", layers.get(S3Key::Region).unwrap_or_default(), |letter| {
        letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
    })?;
    // Two settings mean the endpoint; the first one found counts.
    layers.0.retain(|(key, _)| !matches!(key, S3Key::S3Endpoint | S3Key::DefaultRegion));
    for (key, value) in &mut layers.0 {
        match key {
            S3Key::Endpoint => *value = endpoint(value)?,
            S3Key::RequestPayer if value.eq_ignore_ascii_case("requester") => *value = "true".to_owned(),
            S3Key::RequestPayer | S3Key::SkipSignature => *value = truthy(value).to_string(),
            _ => {}
        }
    }
    layers.checked()
}

fn add_profile(layers: &mut Layers<S3Key>, wanted: Option<&str>, environment: &Environment) -> Result<(), Failure> {
    let known = layers.has_any(&[S3Key::AccessKeyId, S3Key::SecretAccessKey, S3Key::WebIdentityTokenFile]);
    let has_credentials = known || layers.is_set(S3Key::SkipSignature);
    let profile = match Profile::load(wanted, environment) {
        // A profile that is not needed may be missing.
        Err(_) if has_credentials && wanted.is_none() => return Ok(()),
        profile => profile?,
    };
    if !has_credentials && let Some(keys) = profile.keys()? {
        layers.add(S3Key::AccessKeyId, keys.id);
        layers.add(S3Key::SecretAccessKey, keys.secret);
        layers.add_some(S3Key::Token, keys.token);
    }
    if layers.get(S3Key::DefaultRegion).is_none() {
        layers.add_some(S3Key::Region, profile.get("region"));
    }
    layers.add_some(S3Key::Endpoint, profile.get("endpoint_url"));
    Ok(())
}

pub(crate) fn gcs_layers(
    bucket: &str,
    options: &RemoteOptions,
    environment: &Environment,
) -> Result<Layers<GcsKey>, Failure> {
    const CREDENTIALS: [GcsKey; 4] =
        [GcsKey::ServiceAccount, GcsKey::ServiceAccountKey, GcsKey::ApplicationCredentials, GcsKey::BearerToken];
    check_name("bucket", bucket, bucket_letter)?;
    let mut layers = Layers(vec![(GcsKey::Bucket, bucket.to_owned())]);
    if options.anonymous || setting(options, &["gs_no_sign_request"]).is_some_and(truthy) {
        layers.add(GcsKey::SkipSignature, "true");
    }
    layers.add_some(GcsKey::BaseUrl, options.endpoint.clone());
    layers.add_settings(options, &[])?;
    if let Some(host) = environment.get("STORAGE_EMULATOR_HOST") {
        let scheme = if host.contains("://") { "" } else { "http://" };
        if layers.get(GcsKey::BaseUrl).is_none() && !layers.has_any(&CREDENTIALS) {
            layers.add(GcsKey::SkipSignature, "true");
        }
        layers.add(GcsKey::BaseUrl, format!("{scheme}{host}"));
    }
    let has_credentials = layers.has_any(&CREDENTIALS);
    layers.add_environment("GOOGLE_", environment, &CREDENTIALS, has_credentials);
    if !has_credentials && environment.get("GS_NO_SIGN_REQUEST").is_some_and(|value| truthy(value)) {
        layers.add(GcsKey::SkipSignature, "true");
    }
    for (key, value) in &mut layers.0 {
        match key {
            GcsKey::BaseUrl => *value = endpoint(value)?,
            GcsKey::SkipSignature => *value = truthy(value).to_string(),
            _ => {}
        }
    }
    layers.checked()
}

/// Host suffixes of Azure's clouds in an `abfs` address, and those of their blob service.
const AZURE_CLOUDS: [(&str, &str); 6] = [
    (".dfs.core.windows.net", ".blob.core.windows.net"),
    (".blob.core.windows.net", ".blob.core.windows.net"),
    (".dfs.core.usgovcloudapi.net", ".blob.core.usgovcloudapi.net"),
    (".dfs.core.chinacloudapi.cn", ".blob.core.chinacloudapi.cn"),
    (".dfs.fabric.microsoft.com", ".blob.fabric.microsoft.com"),
    (".blob.fabric.microsoft.com", ".blob.fabric.microsoft.com"),
];

pub(crate) fn azure_layers(
    place: &str,
    options: &RemoteOptions,
    environment: &Environment,
) -> Result<Layers<AzureKey>, Failure> {
    const CREDENTIALS: [AzureKey; 6] = [
        AzureKey::AccessKey,
        AzureKey::SasKey,
        AzureKey::Token,
        AzureKey::ClientSecret,
        AzureKey::FederatedTokenFile,
        AzureKey::UseAzureCli,
    ];
    let (container, host) = match place.split_once('@') {
        Some((container, host)) => (container, Some(host)),
        None => (place, None),
    };
    let letter = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit() || matches!(letter, '-' | '$');
    check_name("container", container, letter)?;
    let mut layers = Layers(vec![(AzureKey::ContainerName, container.to_owned())]);
    if options.anonymous || setting(options, &["azure_no_sign_request"]).is_some_and(truthy) {
        layers.add(AzureKey::SkipSignature, "true");
    }
    layers.add_some(AzureKey::Endpoint, options.endpoint.clone());
    if let Some(host) = host {
        let cloud = AZURE_CLOUDS.iter().find_map(|(suffix, blobs)| Some((host.strip_suffix(suffix)?, blobs)));
        let Some((account, blobs)) = cloud else {
            return Err(setup(format!("{host:?} is not an Azure host: give container@account.dfs.core.windows.net")));
        };
        layers.add(AzureKey::AccountName, account);
        layers.add(AzureKey::Endpoint, format!("https://{account}{blobs}"));
    }
    let other = ["azure_storage_connection_string", "azure_storage_account", "account", "azure_storage_key"];
    layers.add_some(AzureKey::AccountName, setting(options, &other[1..3]));
    layers.add_some(AzureKey::AccessKey, setting(options, &other[3..]));
    add_connection_string(&mut layers, setting(options, &other[..1]), &CREDENTIALS);
    layers.add_settings(options, &other)?;
    let variable = |name: &str| environment.get(name).map(String::as_str);
    let has_credentials = layers.has_any(&CREDENTIALS);
    add_connection_string(&mut layers, variable("AZURE_STORAGE_CONNECTION_STRING"), &CREDENTIALS);
    layers.add_some(AzureKey::AccountName, variable("AZURE_STORAGE_ACCOUNT"));
    if !has_credentials {
        layers.add_some(AzureKey::AccessKey, variable("AZURE_STORAGE_KEY"));
    }
    let has_credentials = layers.has_any(&CREDENTIALS);
    layers.add_environment("AZURE_", environment, &CREDENTIALS, has_credentials);
    layers.add_some(AzureKey::MsiEndpoint, variable("IDENTITY_ENDPOINT"));
    if !has_credentials && variable("AZURE_NO_SIGN_REQUEST").is_some_and(truthy) {
        layers.add(AzureKey::SkipSignature, "true");
    }
    finish_azure(layers)
}

fn finish_azure(mut layers: Layers<AzureKey>) -> Result<Layers<AzureKey>, Failure> {
    if layers.is_set(AzureKey::UseEmulator) {
        return Ok(layers);
    }
    let Some(account) = layers.get(AzureKey::AccountName).map(str::to_owned) else {
        return Err(setup(
            "the storage account of the container is missing: set AZURE_STORAGE_ACCOUNT or the setting \
             azure_storage_account_name, or give the address as abfss://container@account.dfs.core.windows.net/key",
        ));
    };
    check_name("storage account", &account, |letter| {
        letter.is_ascii_lowercase() || letter.is_ascii_digit() || letter == '-'
    })?;
    for (key, value) in &mut layers.0 {
        match key {
            AzureKey::Endpoint => *value = azure_endpoint(value, &account)?,
            AzureKey::SkipSignature => *value = truthy(value).to_string(),
            _ => {}
        }
    }
    layers.checked()
}

/// The endpoint of an account. Emulators have no host per account; there the account is the first part of the path.
fn azure_endpoint(address: &str, account: &str) -> Result<String, Failure> {
    let address = endpoint(address)?;
    let local = |url: &Url| match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        host => host.is_some(),
    };
    match Url::parse(&address) {
        Ok(url) if url.path() == "/" && local(&url) => Ok(format!("{address}/{account}")),
        _ => Ok(address),
    }
}

fn add_connection_string(layers: &mut Layers<AzureKey>, text: Option<&str>, credentials: &[AzureKey]) {
    let has_credentials = layers.has_any(credentials);
    let entry = |wanted: &str| {
        let pairs = text?.split(';').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
    };
    layers.add_some(AzureKey::AccountName, entry("AccountName"));
    if !has_credentials {
        layers.add_some(AzureKey::AccessKey, entry("AccountKey"));
        layers.add_some(AzureKey::SasKey, entry("SharedAccessSignature"));
    }
    layers.add_some(AzureKey::UseEmulator, entry("UseDevelopmentStorage"));
    layers.add_some(AzureKey::Endpoint, entry("BlobEndpoint"));
    if let (Some(account), Some(suffix)) = (entry("AccountName"), entry("EndpointSuffix")) {
        let scheme = entry("DefaultEndpointsProtocol").unwrap_or("https");
        layers.add(AzureKey::Endpoint, format!("{scheme}://{account}.blob.{suffix}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(pairs: &[(&str, &str)]) -> Environment {
        // The tests must not read the files of the user who runs them.
        let nowhere = [("AWS_CONFIG_FILE", "/nowhere"), ("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")];
        nowhere.iter().chain(pairs).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    fn s3(options: &RemoteOptions, pairs: &[(&str, &str)]) -> Layers<S3Key> {
        s3_layers("bucket", options, &environment(pairs)).unwrap()
    }

    #[test]
    fn the_callers_settings_override_the_environment() {
        let pairs = [
            ("AWS_REGION", "us-west-2"),
            ("AWS_ENDPOINT_URL_S3", "http://env:1"),
            ("AWS_ACCESS_KEY_ID", "E"),
            ("AWS_SECRET_ACCESS_KEY", "F"),
            ("AWS_SESSION_TOKEN", "G"),
        ];
        let found = s3(&RemoteOptions::default(), &pairs);
        assert_eq!(found.get(S3Key::Endpoint), Some("http://env:1"));
        assert_eq!((found.get(S3Key::Region), found.get(S3Key::Token)), (Some("us-west-2"), Some("G")));
        let options = RemoteOptions::default()
            .with_endpoint("http://mine:2/")
            .with_region("eu-west-1")
            .with_setting("aws_access_key_id", "A")
            .with_setting("AWS_SECRET_ACCESS_KEY", "B");
        let found = s3(&options, &pairs);
        assert_eq!((found.get(S3Key::Endpoint), found.get(S3Key::Region)), (Some("http://mine:2"), Some("eu-west-1")));
        assert_eq!((found.get(S3Key::AccessKeyId), found.get(S3Key::SecretAccessKey)), (Some("A"), Some("B")));
        assert_eq!(found.get(S3Key::Token), None, "a token of other keys");
        assert_eq!(found.get(S3Key::S3Endpoint), None);
    }

    #[test]
    fn names_of_other_tools_are_known() {
        let pairs = [
            ("AWS_NO_SIGN_REQUEST", "YES"),
            ("AWS_REQUEST_PAYER", "requester"),
            ("AWS_S3_ENDPOINT", "localhost:9000"),
            ("AWS_HTTPS", "NO"),
            ("AWS_DEFAULT_REGION", "eu-north-1"),
        ];
        let found = s3(&RemoteOptions::default(), &pairs);
        assert!(found.is_set(S3Key::SkipSignature) && found.is_set(S3Key::RequestPayer));
        assert_eq!(found.get(S3Key::Endpoint), Some("http://localhost:9000"));
        assert_eq!(found.get(S3Key::Region), Some("eu-north-1"));
        assert_eq!(s3(&RemoteOptions::default(), &[]).get(S3Key::Region), Some("us-east-1"));
    }

    #[test]
    fn a_profile_that_is_missing_matters_only_where_it_is_needed() {
        let wanted = environment(&[("AWS_PROFILE", "nobody")]);
        assert!(s3_layers("bucket", &RemoteOptions::default(), &wanted).is_err());
        assert!(s3_layers("bucket", &RemoteOptions::default().with_anonymous(true), &wanted).is_ok());
    }

    #[test]
    fn emulators_of_gcs_get_no_credentials() {
        let pairs = environment(&[("STORAGE_EMULATOR_HOST", "localhost:4443")]);
        let found = gcs_layers("bucket", &RemoteOptions::default(), &pairs).unwrap();
        assert_eq!(found.get(GcsKey::BaseUrl), Some("http://localhost:4443"));
        assert!(found.is_set(GcsKey::SkipSignature));
        let token = RemoteOptions::default().with_setting("google_bearer_token", "t");
        assert!(!gcs_layers("bucket", &token, &pairs).unwrap().is_set(GcsKey::SkipSignature));
    }

    #[test]
    fn azure_accounts_are_found_wherever_they_are_named() {
        let account = |place: &str, pairs: &[(&str, &str)]| {
            azure_layers(place, &RemoteOptions::default(), &environment(pairs)).map(|found| {
                let of = |key| found.get(key).map(str::to_owned);
                (of(AzureKey::AccountName), of(AzureKey::Endpoint), of(AzureKey::AccessKey))
            })
        };
        let text = |words: &str| Some(words.to_owned());
        let blobs = text("https://acc.blob.core.windows.net");
        assert_eq!(account("cont@acc.dfs.core.windows.net", &[]).unwrap(), (text("acc"), blobs, None));
        let gdal = [("AZURE_STORAGE_ACCOUNT", "acc"), ("AZURE_STORAGE_ACCESS_KEY", "a2V5")];
        assert_eq!(account("cont", &gdal).unwrap(), (text("acc"), None, text("a2V5")));
        let string = "AccountName=acc;AccountKey=a2V5==;BlobEndpoint=http://127.0.0.1:10000/acc;";
        let expected = (text("acc"), text("http://127.0.0.1:10000/acc"), text("a2V5=="));
        assert_eq!(account("cont", &[("AZURE_STORAGE_CONNECTION_STRING", string)]).unwrap(), expected);
        assert!(account("cont", &[]).unwrap_err().detail.contains("AZURE_STORAGE_ACCOUNT"));
    }
}
