//! Uploads to S3, GCS and Azure.

use std::fmt::Write as _;

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header::AUTHORIZATION};
use object_store::{
    ObjectMeta, ObjectStore, ObjectStoreExt, PutPayload,
    aws::AwsAuthorizer,
    client::HttpRequestBody,
    multipart::{MultipartStore, PartId},
    path::Path,
};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::{
    super::{
        client::{Client, Route},
        failure::{Failure, ServerError, element},
        store::{Site, Store},
    },
    parts::Limits,
    upload::Upload,
};
use crate::{fault::RemoteFault, remote::options::RemoteOptions, traffic::Traffic};

/// Limits of S3 and GCS on parts.
const NUMBERED: Limits = Limits { min: 5 << 20, max: 5 << 30, part: 8 << 20, numbers: 10_000, whole: 16 << 20 };
/// Limits of Azure on blocks. Their length has no minimum, but their number is limited.
const BLOCKS: Limits = Limits { min: 1 << 20, max: 4000 << 20, part: 8 << 20, numbers: 50_000, whole: 16 << 20 };

/// Characters of keys and values that are not escaped in an address.
const PLAIN: AsciiSet = NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');
const PLAIN_PATH: AsciiSet = PLAIN.remove(b'/');

/// An object that is being uploaded to a store.
pub(super) struct StoreUpload {
    store: Store,
    path: Path,
    client: Client,
    /// The location for the request that assembles numbered parts.
    site: Option<Site>,
}

impl StoreUpload {
    pub(super) fn open(address: &str, options: &RemoteOptions) -> Result<Self, Failure> {
        let client = Client::new(options)?;
        let (store, path) = Store::open(address, options, &client)?;
        let site = match &store {
            Store::S3(_) | Store::Gcs(_) => Some(Store::site(address, options)?),
            Store::Azure(_) => None,
        };
        Ok(Self { store, path, client, site })
    }

    fn objects(&self) -> &dyn ObjectStore {
        match &self.store {
            Store::S3(store) => &**store,
            Store::Gcs(store) => &**store,
            Store::Azure(store) => &**store,
        }
    }

    fn uploads(&self) -> &dyn MultipartStore {
        match &self.store {
            Store::S3(store) => &**store,
            Store::Gcs(store) => &**store,
            Store::Azure(store) => &**store,
        }
    }

    /// Returns the object that exists under the name, if any.
    async fn existing(&self) -> Result<Option<ObjectMeta>, Failure> {
        match self.objects().head(&self.path).await.map_err(|error| Failure::of_store(&error)) {
            Ok(meta) => Ok(Some(meta)),
            Err(failure) if failure.fault == RemoteFault::Missing => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// Asks the store to assemble the object. object_store numbers parts consecutively, and ours have gaps in their numbers.
    async fn assemble(&self, site: &Site, upload: &str, parts: &[(u32, String)]) -> Result<(), Failure> {
        let key = utf8_percent_encode(self.path.as_ref(), &PLAIN_PATH);
        let upload = utf8_percent_encode(upload, &PLAIN);
        let url = format!("{}/{key}?uploadId={upload}", site.bucket_url);
        let body = Bytes::from(list(parts));
        let request = Request::builder()
            .method(Method::POST)
            .uri(url)
            .header("content-type", "application/xml")
            .body(HttpRequestBody::from(body.clone()))
            .map_err(|error| Failure::new(RemoteFault::Setup, format!("the address cannot be used: {error}")))?;
        let request = self.authorized(site, request).await?.map(|_| body);
        let answer = self.client.exchange(request, Route::default()).await?;
        let server_error = answer.extensions().get::<ServerError>().cloned();
        judge(answer.map(|body| body.into_bytes()), server_error.as_ref())
    }

    async fn authorized(
        &self,
        site: &Site,
        mut request: Request<HttpRequestBody>,
    ) -> Result<Request<HttpRequestBody>, Failure> {
        let failed = |error: object_store::Error| Failure::of_store(&error);
        match &self.store {
            _ if !site.signed => {}
            Store::S3(store) => {
                let credential = store.credentials().get_credential().await.map_err(failed)?;
                AwsAuthorizer::new(&credential, "s3", &site.region)
                    .with_request_payer(site.payer)
                    .try_authorize(&mut request, None)
                    .map_err(failed)?;
            }
            Store::Gcs(store) => {
                let credential = store.credentials().get_credential().await.map_err(failed)?;
                let mut value = HeaderValue::try_from(format!("Bearer {}", credential.bearer)).map_err(|_| {
                    Failure::new(RemoteFault::Setup, "the store's token holds bytes no header can have")
                })?;
                value.set_sensitive(true);
                request.headers_mut().insert(AUTHORIZATION, value);
            }
            Store::Azure(_) => {}
        }
        Ok(request)
    }
}

impl Upload for StoreUpload {
    fn limits(&self) -> Limits {
        match self.store {
            Store::S3(_) | Store::Gcs(_) => NUMBERED,
            Store::Azure(_) => BLOCKS,
        }
    }

    async fn begin(&self) -> Result<String, Failure> {
        if let Some(who) = self.site.as_ref().and_then(|site| site.even_parts) {
            let detail = format!(
                "{who} accepts only consecutive parts of equal length, and a file that is written in one pass has others: \
                 write a local file and copy it there"
            );
            return Err(Failure::new(RemoteFault::Setup, detail));
        }
        self.uploads().create_multipart(&self.path).await.map_err(|error| Failure::of_store(&error))
    }

    async fn put_part(&self, upload: &str, number: u32, bytes: Bytes) -> Result<String, Failure> {
        // object_store counts parts from 0.
        let index = number.saturating_sub(1) as usize;
        let stored =
            self.uploads().put_part(&self.path, &upload.to_owned(), index, PutPayload::from_bytes(bytes)).await;
        stored.map(|part| part.content_id).map_err(|error| Failure::of_store(&error))
    }

    async fn complete(&self, upload: &str, parts: &[(u32, String)], size: u64) -> Result<(), Failure> {
        // If the response is lost, the retry finds no such upload. Whether the store has completed it shows in the object that exists
        // under the name now, compared with the one before.
        let before = self.existing().await;
        let completed = match &self.site {
            Some(site) => self.assemble(site, upload, parts).await,
            None => {
                let parts = parts.iter().map(|(_, tag)| PartId { content_id: tag.clone() }).collect();
                let completed = self.uploads().complete_multipart(&self.path, &upload.to_owned(), parts).await;
                completed.map(|_| ()).map_err(|error| Failure::of_store(&error))
            }
        };
        let Err(failure) = completed else { return Ok(()) };
        let is_new = async || match (&before, self.existing().await) {
            (Ok(before), Ok(Some(after))) => is_new(before.as_ref(), &after, size, parts.len(), self.site.is_some()),
            _ => false,
        };
        if !is_unclear(&failure) {
            return Err(failure);
        }
        if is_new().await {
            return Ok(());
        }
        // An upload that can still be aborted was not completed. Azure has no abort.
        if self.site.is_some() && self.abort(upload).await.is_ok() {
            return Err(failure);
        }
        if is_new().await {
            return Ok(());
        }
        let detail = format!(
            "{}; the store does not say whether the object was completed: the object under its name is complete, but \
             may still be the old one",
            failure.detail
        );
        Err(Failure::new(failure.fault, detail))
    }

    async fn put_whole(&self, bytes: Bytes) -> Result<(), Failure> {
        let put = self.objects().put(&self.path, PutPayload::from_bytes(bytes)).await;
        put.map(|_| ()).map_err(|error| Failure::of_store(&error))
    }

    /// Azure has no abort: blocks that belong to no object are invisible and expire after a week.
    async fn abort(&self, upload: &str) -> Result<(), Failure> {
        let dropped = self.uploads().abort_multipart(&self.path, &upload.to_owned()).await;
        dropped.map_err(|error| Failure::of_store(&error))
    }

    fn traffic(&self) -> Traffic {
        self.client.traffic()
    }
}

/// Whether the completion may have succeeded despite this failure.
fn is_unclear(failure: &Failure) -> bool {
    use RemoteFault as Fault;
    // Azure reports blocks that were already used as a protocol error.
    matches!(
        failure.fault,
        Fault::Missing | Fault::Unavailable | Fault::TimedOut | Fault::Protocol | Fault::Cancelled | Fault::Budget
    )
}

/// Whether the object that exists now is the uploaded one, and not the earlier one.
fn is_new(before: Option<&ObjectMeta>, after: &ObjectMeta, size: u64, parts: usize, numbered: bool) -> bool {
    let replaced = before.is_none_or(|before| {
        (&before.e_tag, &before.version, before.last_modified) != (&after.e_tag, &after.version, after.last_modified)
    });
    // The ETags of S3 contain the number of parts; others may not.
    let count = after.e_tag.as_deref().and_then(|tag| tag.trim_matches('"').rsplit_once('-')).map(|(_, count)| count);
    let count = count.filter(|_| numbered).and_then(|count| count.parse::<usize>().ok());
    replaced && after.size == size && count.is_none_or(|count| count == parts)
}

/// Interprets the response to the last request of an upload.
fn judge(answer: Response<Bytes>, server_error: Option<&ServerError>) -> Result<(), Failure> {
    let status = answer.status();
    let body = String::from_utf8_lossy(answer.body());
    let code = element(&body, "Code");
    // A store may report a failure in the body, after it has sent status 200.
    if status.is_success() && body.contains("CompleteMultipartUploadResult") {
        return Ok(());
    }
    if code == Some("NoSuchUpload") {
        return Err(Failure::new(RemoteFault::Unavailable, "the store knows of no such upload (NoSuchUpload)"));
    }
    let status = if status.is_success() { StatusCode::INTERNAL_SERVER_ERROR } else { status };
    let words: String = code.unwrap_or_default().chars().filter(char::is_ascii_alphanumeric).take(60).collect();
    let mut failure = Failure::of_status(status, server_error);
    if !words.is_empty() && server_error.is_none() {
        let _ = write!(failure.detail, " ({words})");
    }
    Err(failure)
}

/// The list of parts in the XML of S3 and GCS.
fn list(parts: &[(u32, String)]) -> String {
    let mut text = "<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">".to_owned();
    for (number, tag) in parts {
        let _ = write!(text, "<Part><PartNumber>{number}</PartNumber>");
        // If checksums were requested, object_store returns the tag and checksums as XML of its own.
        match element(tag, "e_tag") {
            Some(inner) => {
                let _ = write!(text, "<ETag>{inner}</ETag>");
                for (from, to) in [("checksum_sha256", "ChecksumSHA256"), ("checksum_crc64nvme", "ChecksumCRC64NVME")] {
                    if let Some(sum) = element(tag, from) {
                        let _ = write!(text, "<{to}>{sum}</{to}>");
                    }
                }
            }
            None => {
                let tag = tag.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                let _ = write!(text, "<ETag>{tag}</ETag>");
            }
        }
        text.push_str("</Part>");
    }
    text.push_str("</CompleteMultipartUpload>");
    text
}

#[cfg(test)]
#[path = "store_tests.rs"]
mod tests;
