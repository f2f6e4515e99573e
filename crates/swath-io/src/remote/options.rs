//! How servers and stores are asked.

use std::{fmt, time::Duration};

/// Where an address comes from: how far it is trusted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// From the user, who may mean a server of their own.
    #[default]
    User,
    /// From inside a file, such as a VRT: never to a private address.
    File,
}

/// How servers and stores are asked. The default suits public and private stores alike: credentials are found as the
/// stores' own tools find them.
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
            // Pauses of 52 to 106 s in all: stores that throttle do so for longer than a few seconds.
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
        /// Ask without credentials, as public buckets allow.
        with_anonymous(anonymous: bool) = anonymous;
        /// The server of a store that is not its maker's own: an S3-compatible one, or an emulator.
        with_endpoint(endpoint: impl Into<String>) = Some(endpoint.into());
        /// The region of a bucket, where the store wants to know.
        with_region(region: impl Into<String>) = Some(region.into());
        /// Bytes that may come in over this handle; more is an error.
        with_max_bytes(max_bytes: u64) = Some(max_bytes);
        /// Requests that this handle may send; more is an error.
        with_max_requests(max_requests: u64) = Some(max_requests);
        /// Longest time that one request may take, all its attempts together; a long read is many requests. While a body goes
        /// out, it is the longest time in which the store takes not a byte: a slow line may take as long as it needs.
        with_deadline(deadline: Duration) = deadline;
        /// Longest time that a connection may take to be made.
        with_connect_timeout(connect_timeout: Duration) = connect_timeout;
        /// Longest time without a byte, in or out, before an attempt is given up.
        with_stall_timeout(stall_timeout: Duration) = stall_timeout;
        /// How often a request that failed through no fault of ours is sent again.
        with_retries(retries: u32) = retries;
        /// Redirects that are followed.
        with_redirects(redirects: u32) = redirects;
        /// Requests that may be on their way at once.
        with_in_flight(in_flight: usize) = in_flight.clamp(1, 1024);
        /// Refuse private, loopback and link-local addresses, wherever the address comes from.
        with_public_only(public_only: bool) = public_only;
        /// Hosts (`name` or `name:port`) that may be asked although their addresses are private.
        with_allowed_hosts(allowed_hosts: Vec<String>) = allowed_hosts;
        /// Where the address comes from.
        with_origin(origin: Origin) = origin;
    }

    /// A header that every request to a plain HTTP server carries; redirects to other hosts do not get it.
    #[must_use]
    pub fn with_header(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// A setting of the store by its usual name, such as `aws_access_key_id`; it counts before the environment.
    #[must_use]
    pub fn with_setting(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.settings.push((name.into(), value.into()));
        self
    }
}

// Settings and headers hold secrets: only their names are shown.
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
