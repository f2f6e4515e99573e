//! Connects object_store's clients to the network: they sign requests, [`Client`] sends them.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use http::{Request, Response, StatusCode, Uri};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};
use url::Url;

use super::{
    body::{ReceivedBody, collect},
    client::{Client, Route},
    failure::{Failure, ServerError},
};
use crate::fault::RemoteFault;

/// Hosts of the metadata services from which machines in a cloud get credentials.
const METADATA: [&str; 4] = ["169.254.169.254", "169.254.170.2", "metadata.google.internal", "[fd00:ec2::254]"];

const NO_CREDENTIALS: &str = "no credentials found: set those of the store in the environment, a profile or the \
                              settings, or use no credentials (anonymous) if the data is public";

/// Intercepts the response to one request of a store's client, so that ranges of every store are checked in the same way. It
/// travels as an extension of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tap(Arc<Mutex<Option<Answer>>>);

type Answer = Result<Response<ReceivedBody>, Failure>;

impl Tap {
    /// The response, if the request was sent.
    pub(crate) fn take(&self) -> Option<Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, answer: Answer) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }
}

/// Replaces object_store's own HTTP client.
#[derive(Debug, Clone)]
pub(crate) struct Connector {
    client: Client,
    /// The host of the store, if the caller names it: every request to it is meant for the store.
    named: Option<String>,
}

impl Connector {
    /// For a store whose server is `endpoint`, or the vendor's own.
    ///
    /// # Errors
    /// When that server is not allowed. Nothing is sent, not even to get credentials.
    pub(crate) fn new(client: &Client, endpoint: Option<&str>) -> Result<Self, Failure> {
        let endpoint = endpoint.and_then(|endpoint| Url::parse(endpoint).ok());
        if let Some(url) = &endpoint {
            client.check(url)?;
        }
        let named = endpoint.and_then(|url| url.host_str().map(str::to_owned));
        Ok(Self { client: client.clone(), named })
    }

    /// Whether the store's client sends this request to get credentials.
    fn is_metadata(&self, uri: &Uri) -> bool {
        const PATHS: [&str; 5] =
            ["/latest/", "/v1/credentials", "/v2/credentials", "/computeMetadata/", "/metadata/identity"];
        let host = uri.host().filter(|host| METADATA.contains(host) && self.named.as_deref() != Some(host));
        host.is_some() && PATHS.iter().any(|path| uri.path().starts_with(path))
    }
}

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Connector {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let tap = parts.extensions.get::<Tap>().cloned();
        let metadata = self.is_metadata(&parts.uri);
        let request = Request::from_parts(parts, collect(body).await?);
        let answer = self.client.exchange(request, Route { metadata, ..Route::default() }).await;
        if let Some(tap) = tap {
            tap.put(answer);
            return Err(failed(Failure::new(RemoteFault::Cancelled, "another caller received the answer")));
        }
        let answer = match answer {
            Err(_) if metadata => return Err(failed(Failure::new(RemoteFault::Denied, NO_CREDENTIALS))),
            answer => answer.map_err(failed)?,
        };
        let status = answer.status();
        if status.is_success() || status == StatusCode::NOT_MODIFIED {
            return Ok(answer.map(HttpResponseBody::new));
        }
        Err(failed(match metadata {
            true => Failure::new(RemoteFault::Denied, NO_CREDENTIALS),
            false => Failure::of_status(status, answer.extensions().get::<ServerError>()),
        }))
    }
}

/// Wraps a failure for object_store, whose own retries are off; [`Failure::of_store`] unwraps it.
fn failed(failure: Failure) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, failure)
}
