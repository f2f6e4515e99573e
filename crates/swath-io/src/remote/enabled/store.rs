//! Opens object stores by their addresses, with their settings.

use std::sync::Arc;

use super::{
    client::Client,
    connector::Connector,
    credentials::environment,
    failure::Failure,
    layers::setup,
    settings::{azure_layers, gcs_layers, s3_layers},
};
use crate::remote::options::RemoteOptions;
use object_store::{
    ClientOptions, RetryConfig, StaticCredentialProvider,
    aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey as S3Key},
    azure::{AzureConfigKey as AzureKey, MicrosoftAzure, MicrosoftAzureBuilder},
    gcp::{GcpCredential, GoogleCloudStorage, GoogleCloudStorageBuilder, GoogleConfigKey as GcsKey},
    path::Path,
};

/// An opened store.
#[derive(Debug, Clone)]
pub(crate) enum Store {
    S3(Arc<AmazonS3>),
    Gcs(Arc<GoogleCloudStorage>),
    Azure(Arc<MicrosoftAzure>),
}

/// The location of an object in S3 or GCS, for requests that object_store does not offer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Site {
    /// Address of the bucket, without a final slash.
    pub(crate) bucket_url: String,
    pub(crate) region: String,
    /// Whether requests are signed.
    pub(crate) signed: bool,
    /// Whether the requester pays.
    pub(crate) payer: bool,
    /// The name of a service that accepts only consecutive parts of equal length.
    pub(crate) even_parts: Option<&'static str>,
}

impl Store {
    pub(crate) fn open(address: &str, options: &RemoteOptions, client: &Client) -> Result<(Self, Path), Failure> {
        let environment = environment();
        let (scheme, bucket, key) = split(address)?;
        let path = Path::parse(key).map_err(|error| setup(format!("the key cannot be used: {error}")))?;
        if path.as_ref() != key {
            return Err(setup("keys neither begin nor end with a slash"));
        }
        // Our client retries; retries of two layers would multiply.
        let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
        let built = match scheme.as_str() {
            "s3" | "s3a" => {
                let layers = s3_layers(bucket, options, &environment)?;
                let connector = Connector::new(client, layers.get(S3Key::Endpoint))?;
                let builder = layers
                    .0
                    .into_iter()
                    .fold(AmazonS3Builder::new().with_client_options(content_types()), |builder, (key, value)| {
                        builder.with_config(key, value)
                    });
                builder.with_retry(retry).with_http_connector(connector).build().map(|store| Self::S3(Arc::new(store)))
            }
            "gs" | "gcs" => {
                let layers = gcs_layers(bucket, options, &environment)?;
                let connector = Connector::new(client, layers.get(GcsKey::BaseUrl))?;
                let mut builder = GoogleCloudStorageBuilder::new().with_client_options(content_types());
                if layers.is_set(GcsKey::SkipSignature) {
                    // Otherwise a broken file of default credentials would prevent requests without credentials.
                    let no_token = GcpCredential { bearer: String::new() };
                    builder = builder.with_credentials(Arc::new(StaticCredentialProvider::new(no_token)));
                }
                for (key, value) in layers.0 {
                    builder = builder.with_config(key, value);
                }
                builder.with_retry(retry).with_http_connector(connector).build().map(|store| Self::Gcs(Arc::new(store)))
            }
            _ => {
                let layers = azure_layers(bucket, options, &environment)?;
                let connector = Connector::new(client, layers.get(AzureKey::Endpoint))?;
                let builder = layers.0.into_iter().fold(
                    MicrosoftAzureBuilder::new().with_client_options(content_types()),
                    |builder, (key, value)| builder.with_config(key, value),
                );
                builder
                    .with_retry(retry)
                    .with_http_connector(connector)
                    .build()
                    .map(|store| Self::Azure(Arc::new(store)))
            }
        };
        Ok((built.map_err(|error| Failure::of_store(&error))?, path))
    }

    /// The location of the bucket of an `s3://` or `gs://` address.
    pub(crate) fn site(address: &str, options: &RemoteOptions) -> Result<Site, Failure> {
        let (scheme, bucket, _) = split(address)?;
        if matches!(scheme.as_str(), "gs" | "gcs") {
            let layers = gcs_layers(bucket, options, &environment())?;
            let base = layers.get(GcsKey::BaseUrl).unwrap_or("https://storage.googleapis.com");
            let signed = !layers.is_set(GcsKey::SkipSignature);
            let bucket_url = format!("{base}/{bucket}");
            return Ok(Site { bucket_url, region: String::new(), signed, payer: false, even_parts: None });
        }
        let layers = s3_layers(bucket, options, &environment())?;
        let region = layers.get(S3Key::Region).unwrap_or("us-east-1").to_owned();
        let virtual_hosted = layers.is_set(S3Key::VirtualHostedStyleRequest);
        let bucket_url = match (layers.get(S3Key::Endpoint), virtual_hosted) {
            (Some(endpoint), true) => endpoint.to_owned(),
            (Some(endpoint), false) => format!("{endpoint}/{bucket}"),
            (None, true) => format!("https://{bucket}.s3.{region}.amazonaws.com"),
            (None, false) => format!("https://s3.{region}.amazonaws.com/{bucket}"),
        };
        let even_parts = match () {
            () if bucket_url.contains(".r2.cloudflarestorage.com") => Some("Cloudflare R2"),
            () if layers.is_set(S3Key::S3Express) => Some("S3 Express"),
            () if layers.get(S3Key::Checksum).is_some() => Some("S3 with checksums of parts"),
            () => None,
        };
        let (signed, payer) = (!layers.is_set(S3Key::SkipSignature), layers.is_set(S3Key::RequestPayer));
        Ok(Site { bucket_url, region, signed, payer, even_parts })
    }
}

/// Splits an address into scheme, bucket and key. The key is used as written; nothing is decoded.
fn split(address: &str) -> Result<(String, &str, &str), Failure> {
    let (scheme, rest) = address.split_once("://").ok_or_else(|| setup("the address has no scheme"))?;
    let (bucket, key) = rest.split_once('/').unwrap_or((rest, ""));
    if key.is_empty() {
        return Err(setup("the address names a bucket, but no object in it"));
    }
    Ok((scheme.to_ascii_lowercase(), bucket, key))
}

/// The content types of objects, by suffix.
fn content_types() -> ClientOptions {
    ["tif", "tiff", "TIF", "TIFF"]
        .into_iter()
        .fold(ClientOptions::new(), |options, suffix| options.with_content_type_for_suffix(suffix, "image/tiff"))
}
