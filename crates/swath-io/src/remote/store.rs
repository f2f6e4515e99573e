//! Object stores by their addresses, and with what settings each is asked.

use std::sync::Arc;

use object_store::{
    ObjectStoreExt as _, RetryConfig, StaticCredentialProvider,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey as S3Key},
    azure::{AzureConfigKey as AzureKey, MicrosoftAzure, MicrosoftAzureBuilder},
    gcp::{GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey as GcsKey},
    path::Path,
};
use url::{Host, Url};

use super::{
    RemoteFault, RemoteOptions,
    client::Client,
    connector::Connector,
    credentials::{Environment, Profile, environment},
    failure::Failure,
};

/// A store that can be asked.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    S3(Arc<AmazonS3>),
    Gcs(Arc<GoogleCloudStorage>),
    Azure(Arc<MicrosoftAzure>),
}

/// Where S3 keeps an object, for requests that object_store has no words for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    /// Of the bucket, without a slash at its end.
    pub(crate) bucket_url: String,
    pub(crate) region: String,
    /// Whether requests carry a signature.
    pub(crate) signed: bool,
}

impl Store {
    pub(crate) fn open(address: &str, options: &RemoteOptions, client: &Client) -> Result<(Self, Path), Failure> {
        let environment = environment();
        let (scheme, bucket, key) = split(address)?;
        let path = Path::parse(key).map_err(|error| setup(format!("the key cannot be used: {error}")))?;
        if path.as_ref() != key {
            return Err(setup("keys neither begin nor end with a slash"));
        }
        let connector = Connector(client.clone());
        // Retries are the client's: two layers of them would multiply.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let built = match scheme.as_str() {
            "s3" | "s3a" => {
                let layers = s3_layers(bucket, options, &environment)?;
                let builder = layers
                    .0
                    .into_iter()
                    .fold(AmazonS3Builder::new(), |builder, (key, value)| builder.with_config(key, value));
                builder.with_retry(retry).with_http_connector(connector).build().map(|store| Self::S3(Arc::new(store)))
            }
            "gs" | "gcs" => {
                let layers = gcs_layers(bucket, options, &environment)?;
                let mut builder = GoogleCloudStorageBuilder::new();
                if layers.is_set(GcsKey::SkipSignature) {
                    // Without this a broken file of default credentials would stand in the way of asking without any.
                    let nobody = GcpCredential { bearer: String::new() };
                    builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(nobody)));
                }
                for (key, value) in layers.0 {
                    builder = builder.with_config(key, value);
                }
                builder.with_retry(retry).with_http_connector(connector).build().map(|store| Self::Gcs(Arc::new(store)))
            }
            _ => {
                let layers = azure_layers(bucket, options, &environment)?;
                let builder = layers
                    .0
                    .into_iter()
                    .fold(MicrosoftAzureBuilder::new(), |builder, (key, value)| builder.with_config(key, value));
                builder
                    .with_retry(retry)
                    .with_http_connector(connector)
                    .build()
                    .map(|store| Self::Azure(Arc::new(store)))
            }
        };
        Ok((built.map_err(|error| Failure::of_store(&error))?, path))
    }

    /// Where the bucket of an `s3://` address is.
    pub(crate) fn site(address: &str, options: &RemoteOptions) -> Result<Site, Failure> {
        let (_, bucket, _) = split(address)?;
        let layers = s3_layers(bucket, options, &environment())?;
        let region = layers.get(S3Key::Region).unwrap_or("us-east-1").to_owned();
        let virtual_hosted = layers.is_set(S3Key::VirtualHostedStyleRequest);
        let bucket_url = match (layers.get(S3Key::Endpoint), virtual_hosted) {
            (Some(endpoint), true) => endpoint.to_owned(),
            (Some(endpoint), false) => format!("{endpoint}/{bucket}"),
            (None, true) => format!("https://{bucket}.s3.{region}.amazonaws.com"),
            (None, false) => format!("https://s3.{region}.amazonaws.com/{bucket}"),
        };
        Ok(Site { bucket_url, region, signed: !layers.is_set(S3Key::SkipSignature) })
    }
}

fn setup(detail: impl Into<String>) -> Failure {
    Failure::new(RemoteFault::Setup, detail)
}

/// Scheme, bucket and key of an address. The key is what is written there: nothing in it is decoded.
fn split(address: &str) -> Result<(String, &str, &str), Failure> {
    let (scheme, rest) = address.split_once("://").ok_or_else(|| setup("the address has no scheme"))?;
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if key.is_empty() {
        return Err(setup("the address names a bucket, but no object in it"));
    }
    Ok((scheme.to_ascii_lowercase(), bucket, key))
}

/// Settings of which those that were added first count.
struct Layers<K>(Vec<(K, String)>);

impl<K: PartialEq + Copy + std::str::FromStr> Layers<K> {
    fn get(&self, key: K) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == key).map(|(_, value)| value.as_str())
    }

    fn is_set(&self, key: K) -> bool {
        self.get(key).is_some_and(truthy)
    }

    fn add(&mut self, key: K, value: impl Into<String>) {
        if self.get(key).is_none() {
            self.0.push((key, value.into()));
        }
    }

    fn add_some(&mut self, key: K, value: Option<impl Into<String>>) {
        if let Some(value) = value {
            self.add(key, value);
        }
    }

    fn has_any(&self, keys: &[K]) -> bool {
        self.0.iter().any(|(key, _)| keys.contains(key))
    }

    /// Adds the variables whose names begin with `prefix`. Who we are is taken from one place: credentials of two are none.
    fn add_environment(&mut self, prefix: &str, environment: &Environment, credentials: &[K]) {
        let settled = self.has_any(credentials);
        for (name, value) in environment.iter().filter(|(name, _)| name.starts_with(prefix)) {
            if let Ok(key) = name.to_ascii_lowercase().parse()
                && !(settled && credentials.contains(&key))
            {
                self.add(key, value);
            }
        }
    }

    /// Adds the caller's settings; those of other stores are for other addresses.
    fn add_settings(&mut self, options: &RemoteOptions, special: &[&str]) -> Result<(), Failure> {
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

fn setting<'a>(options: &'a RemoteOptions, names: &[&str]) -> Option<&'a str> {
    let found = options.settings.iter().find(|(name, _)| names.iter().any(|wanted| name.eq_ignore_ascii_case(wanted)));
    found.map(|(_, value)| value.as_str())
}

fn truthy(value: &str) -> bool {
    ["1", "true", "yes", "on"].iter().any(|word| value.eq_ignore_ascii_case(word))
}

fn endpoint(address: &str) -> Result<String, Failure> {
    let url = Url::parse(address).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    match url {
        Some(_) => Ok(address.trim_end_matches('/').to_owned()),
        None => Err(setup("an endpoint is an address that begins with http:// or https://")),
    }
}

/// Names become parts of hosts and paths: nothing may be in them that ends either.
fn check_name(kind: &str, name: &str, allowed: impl Fn(char) -> bool) -> Result<(), Failure> {
    let fine = name.len() >= 2 && name.len() <= 255 && name.chars().all(allowed) && !name.contains("..");
    if fine { Ok(()) } else { Err(setup(format!("{name:?} is no name of a {kind}"))) }
}

fn bucket_letter(letter: char) -> bool {
    letter.is_ascii_alphanumeric() || matches!(letter, '.' | '-' | '_')
}

fn s3_layers(bucket: &str, options: &RemoteOptions, environment: &Environment) -> Result<Layers<S3Key>, Failure> {
    const CREDENTIALS: [S3Key; 3] = [S3Key::AccessKeyId, S3Key::SecretAccessKey, S3Key::Token];
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
    if profile.is_none() {
        layers.add_some(S3Key::Endpoint, variable("AWS_ENDPOINT_URL_S3"));
        layers.add_environment("AWS_", environment, &CREDENTIALS);
    }
    // GDAL's names for the same.
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
    if variable("AWS_NO_SIGN_REQUEST").is_some_and(truthy) {
        layers.add(S3Key::SkipSignature, "true");
    }
    add_profile(&mut layers, profile, environment)?;
    layers.add_some(S3Key::Region, layers.get(S3Key::DefaultRegion).map(str::to_owned));
    layers.add(S3Key::Region, "us-east-1");
    check_name("region", layers.get(S3Key::Region).unwrap_or_default(), |letter| {
        letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_')
    })?;
    // Two settings mean the endpoint, and the one that was found first counts.
    layers.0.retain(|(key, _)| !matches!(key, S3Key::S3Endpoint | S3Key::DefaultRegion));
    for (key, value) in &mut layers.0 {
        match key {
            S3Key::Endpoint => *value = endpoint(value)?,
            S3Key::RequestPayer if value.eq_ignore_ascii_case("requester") => *value = "true".to_owned(),
            S3Key::RequestPayer | S3Key::SkipSignature => *value = truthy(value).to_string(),
            _ => {}
        }
    }
    Ok(layers)
}

fn add_profile(layers: &mut Layers<S3Key>, wanted: Option<&str>, environment: &Environment) -> Result<(), Failure> {
    let profile = Profile::load(wanted, environment)?;
    let web_identity = layers.has_any(&[S3Key::WebIdentityTokenFile]);
    let settled = layers.has_any(&[S3Key::AccessKeyId, S3Key::SecretAccessKey]) || web_identity;
    if !settled
        && !layers.is_set(S3Key::SkipSignature)
        && let Some(keys) = profile.keys()?
    {
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

fn gcs_layers(bucket: &str, options: &RemoteOptions, environment: &Environment) -> Result<Layers<GcsKey>, Failure> {
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
    layers.add_environment("GOOGLE_", environment, &CREDENTIALS);
    if environment.get("GS_NO_SIGN_REQUEST").is_some_and(|value| truthy(value)) {
        layers.add(GcsKey::SkipSignature, "true");
    }
    for (key, value) in &mut layers.0 {
        match key {
            GcsKey::BaseUrl => *value = endpoint(value)?,
            GcsKey::SkipSignature => *value = truthy(value).to_string(),
            _ => {}
        }
    }
    Ok(layers)
}

/// Clouds whose hosts may follow the account in an `abfs` address, with the host of their blobs.
const AZURE_CLOUDS: [(&str, &str); 6] = [
    (".dfs.core.windows.net", ".blob.core.windows.net"),
    (".blob.core.windows.net", ".blob.core.windows.net"),
    (".dfs.core.usgovcloudapi.net", ".blob.core.usgovcloudapi.net"),
    (".dfs.core.chinacloudapi.cn", ".blob.core.chinacloudapi.cn"),
    (".dfs.fabric.microsoft.com", ".blob.fabric.microsoft.com"),
    (".blob.fabric.microsoft.com", ".blob.fabric.microsoft.com"),
];

fn azure_layers(place: &str, options: &RemoteOptions, environment: &Environment) -> Result<Layers<AzureKey>, Failure> {
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
            return Err(setup(format!(
                "{host:?} is no host of Azure: container@account.dfs.core.windows.net is meant"
            )));
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
    let settled = layers.has_any(&CREDENTIALS);
    add_connection_string(&mut layers, variable("AZURE_STORAGE_CONNECTION_STRING"), &CREDENTIALS);
    layers.add_some(AzureKey::AccountName, variable("AZURE_STORAGE_ACCOUNT"));
    if !settled {
        layers.add_some(AzureKey::AccessKey, variable("AZURE_STORAGE_KEY"));
    }
    layers.add_environment("AZURE_", environment, &CREDENTIALS);
    layers.add_some(AzureKey::MsiEndpoint, variable("IDENTITY_ENDPOINT"));
    if variable("AZURE_NO_SIGN_REQUEST").is_some_and(truthy) {
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
            "whose container is it? Set AZURE_STORAGE_ACCOUNT or the setting azure_storage_account_name, or give the address \
             as abfss://container@account.dfs.core.windows.net/key",
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
    Ok(layers)
}

/// The endpoint of an account. Emulators have no name for each account: there it is the first part of the path.
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
    let settled = layers.has_any(credentials);
    let entry = |wanted: &str| {
        let pairs = text?.split(';').filter_map(|pair| pair.split_once('='));
        pairs.into_iter().find(|(name, _)| name.trim().eq_ignore_ascii_case(wanted)).map(|(_, value)| value.trim())
    };
    layers.add_some(AzureKey::AccountName, entry("AccountName"));
    if !settled {
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
