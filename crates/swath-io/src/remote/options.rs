//! Options for requests to servers and stores.

use std::{fmt, time::Duration};

/// The origin of an address, which decides how far it is trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The user, who may name a server on a private network.
    #[default]
    User,
    /// The content of a file, such as a VRT. Private addresses are rejected.
    File,
}

/// Options for requests to servers and stores. The default suits public and private stores: credentials are looked up as the
/// stores' own tools do.
#[derive(Clone)]
pub struct RemoteOptions {
    pub(crate) anonymous: bool,
    pub(crate) endpoint: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) settings: Vec<(String, String)>,
    pub(crate) max_bytes: Option<u64>,
    pub(crate) max_requests: Option<u64>,
    pub(crate) deadline: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) stall_timeout: Duration,
    pub(crate) retries: u32,
    pub(crate) redirects: u32,
    pub(crate) in_flight: usize,
    pub(crate) public_only: bool,
    pub(crate) allowed_hosts: Vec<String>,
    pub(crate) origin: Origin,
}

impl Default for RemoteOptions {
    fn default() -> Self {
        Self {
            anonymous: false,
            endpoint: None,
            region: None,
            headers: Vec::new(),
            settings: Vec::new(),
            max_bytes: None,
            max_requests: None,
            deadline: Duration::from_secs(180),
            connect_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(30),
            // The pauses add up to 52 to 106 s, since stores throttle for longer than a few seconds.
            retries: 12,
            redirects: 5,
            in_flight: 16,
            public_only: false,
            allowed_hosts: Vec::new(),
            origin: Origin::User,
        }
    }
}

macro_rules! setters {
    ($($(#[$doc:meta])* $name:ident($field:ident: $kind:ty) = $value:expr;)*) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $name(mut self, $field: $kind) -> Self {
            self.$field = $value;
            self
        }
    )*};
}

impl RemoteOptions {
    setters! {
        /// Send no credentials, for public buckets.
        with_anonymous(anonymous: bool) = anonymous;
        /// The server of the store, if not the vendor's: an S3-compatible one, or an emulator.
        with_endpoint(endpoint: impl Into<String>) = Some(endpoint.into());
        /// The region of the bucket, if the store needs it.
        with_region(region: impl Into<String>) = Some(region.into());
        /// Most bytes that this handle may receive; more is an error.
        with_max_bytes(max_bytes: u64) = Some(max_bytes);
        /// Most requests that this handle may send; more is an error.
        with_max_requests(max_requests: u64) = Some(max_requests);
        /// Longest time that one request may take, including all attempts; a long read consists of many requests. While a body is
        /// sent, it is the longest time without progress, so that a slow connection may take as long as it needs.
        with_deadline(deadline: Duration) = deadline;
        /// Longest time to establish a connection.
        with_connect_timeout(connect_timeout: Duration) = connect_timeout;
        /// Longest time without a byte in either direction before an attempt is abandoned.
        with_stall_timeout(stall_timeout: Duration) = stall_timeout;
        /// How often a request that failed temporarily is retried.
        with_retries(retries: u32) = retries;
        /// Most redirects to follow.
        with_redirects(redirects: u32) = redirects;
        /// Most requests in flight.
        with_in_flight(in_flight: usize) = in_flight.clamp(1, 1024);
        /// Reject private, loopback and link-local addresses, whatever the origin of the address.
        with_public_only(public_only: bool) = public_only;
        /// Hosts (`name` or `name:port`) that are allowed although their addresses are private. Where there are any, all
        /// other private, loopback and link-local addresses are rejected; public ones are not.
        with_allowed_hosts(allowed_hosts: Vec<String>) = allowed_hosts;
        /// The origin of the address.
        with_origin(origin: Origin) = origin;
    }

    /// Adds a header to every request to a plain HTTP server. It is not sent to other hosts after a redirect.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Adds a setting of the store by its usual name, such as `aws_access_key_id`. It takes precedence over the environment.
    #[must_use]
    pub fn with_setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }
}

// Settings and headers hold secrets, so only their names are printed.
impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = |pairs: &[(String, String)]| pairs.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
        f.debug_struct("RemoteOptions")
            .field("anonymous", &self.anonymous)
            .field("region", &self.region)
            .field("headers", &names(&self.headers))
            .field("settings", &names(&self.settings))
            .field("max_bytes", &self.max_bytes)
            .field("max_requests", &self.max_requests)
            .field("deadline", &self.deadline)
            .field("public_only", &self.public_only)
            .field("origin", &self.origin)
            .finish_non_exhaustive()
    }
}
