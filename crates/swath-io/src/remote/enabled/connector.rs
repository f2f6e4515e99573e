//! The way of object_store's clients to the network: they sign, [`Client`] does the rest.

use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use http::{Request, Response, StatusCode, Uri};
use object_store::{
    ClientOptions,
    client::{
        HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpResponseBody, HttpService,
    },
};

use super::{
    RemoteFault,
    body::{Pieces, collect},
    client::{Client, Route},
    failure::{Failure, Told},
};

/// Where machines in a cloud ask who they are. Nothing that a caller names leads there through a store's client.
const METADATA: [&str; 4] = ["169.254.169.254", "169.254.170.2", "metadata.google.internal", "[fd00:ec2::254]"];

const NO_CREDENTIALS: &str = "no credentials found: set those of the store in the environment, a profile or the \
                              settings, or ask without (anonymous) if the data is public";

/// Takes the answer to one request of a store's client out of its way, so that ranges of every store are judged alike
/// and by us. It goes along as an extension of the request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Tap(Arc<Mutex<Option<Answer>>>);

type Answer = Result<Response<Pieces>, Failure>;

impl Tap {
    /// The answer, if the request was sent at all.
    pub(crate) fn take(&self) -> Option<Answer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    fn put(&self, answer: Answer) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(answer);
    }
}

/// Gives object_store our client in place of its own.
#[derive(Debug)]
pub(crate) struct Connector(pub(crate) Client);

impl HttpConnector for Connector {
    fn connect(&self, _: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.0.clone()))
    }
}

#[async_trait]
impl HttpService for Client {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, body) = request.into_parts();
        let tap = parts.extensions.get::<Tap>().cloned();
        let metadata = is_metadata(&parts.uri);
        let request = Request::from_parts(parts, collect(body).await?);
        let answer = self.exchange(request, Route { metadata, ..Route::default() }).await;
        if let Some(tap) = tap {
            tap.put(answer);
            return Err(failed(Failure::new(RemoteFault::Cancelled, "the answer was taken elsewhere")));
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
            false => Failure::of_status(status, answer.extensions().get::<Told>()),
        }))
    }
}

fn is_metadata(uri: &Uri) -> bool {
    // A store that is said to be there is none of them.
    const PATHS: [&str; 5] =
        ["/latest/", "/v1/credentials", "/v2/credentials", "/computeMetadata/", "/metadata/identity"];
    uri.host().is_some_and(|host| METADATA.contains(&host)) && PATHS.iter().any(|path| uri.path().starts_with(path))
}

/// A failure on its way through object_store, whose own retries are off: [`Failure::of_store`] finds it again.
fn failed(failure: Failure) -> HttpError {
    HttpError::new(HttpErrorKind::Unknown, failure)
}
