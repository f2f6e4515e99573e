//! Which addresses may be asked: the rules against being led to machines that only this one can reach.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::{Origin, RemoteFault, RemoteOptions, failure::Failure, names::lookup};

/// How a connection to a host is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Level {
    /// Anywhere, through the proxy of the system where there is one.
    Open,
    /// Anywhere, without a proxy, which might reach another host of that name: its own loopback, for one.
    Direct,
    /// To public addresses only. Names are checked when they are resolved for the connection, so that a name that
    /// resolves anew does not help; a proxy would resolve them itself, out of sight, and is not used.
    Public,
}

/// What a caller allows.
#[derive(Debug)]
pub(crate) struct Guard {
    strict: bool,
    allowed: Vec<(Host, Option<u16>)>,
}

impl Guard {
    pub(crate) fn new(options: &RemoteOptions) -> Result<Self, Failure> {
        let allowed = options.allowed_hosts.iter().map(|entry| {
            parse_allowed(entry).ok_or_else(|| {
                Failure::new(RemoteFault::Setup, format!("allowed host {entry:?} is neither `name` nor `name:port`"))
            })
        });
        Ok(Self {
            strict: options.public_only || options.origin == Origin::File,
            allowed: allowed.collect::<Result<_, _>>()?,
        })
    }

    /// How `url` may be asked, if at all. `from_public`: a public host sent us there.
    pub(crate) fn check(&self, url: &Url, from_public: bool) -> Result<Level, Failure> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused(format!("{}: only http and https are asked", url.scheme())));
        }
        let Some(host) = url.host() else {
            return Err(Failure::new(RemoteFault::Setup, "the address has no host"));
        };
        let host = plain(host.to_owned());
        let port = url.port_or_known_default();
        let allowed = self.allowed.iter().any(|(name, only)| *name == host && (only.is_none() || *only == port));
        if allowed || (!self.strict && !from_public) {
            return Ok(if self.strict || is_loopback(&host) { Level::Direct } else { Level::Open });
        }
        let public = match &host {
            Host::Domain(_) => !is_loopback(&host),
            Host::Ipv4(address) => is_public((*address).into()),
            Host::Ipv6(address) => is_public((*address).into()),
        };
        if public { Ok(Level::Public) } else { Err(private(&host.to_string())) }
    }
}

/// Whether a host is this machine by its looks.
fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.to_canonical().is_loopback(),
    }
}

/// Whether a proxy may have hidden who answered: a public host has then to be supposed.
pub(crate) fn is_hidden(url: &Url, level: Level) -> bool {
    const PROXIES: [&str; 6] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let named = match url.host() {
        Some(Host::Domain(name)) => !(name == "localhost" || name.ends_with(".localhost")),
        Some(Host::Ipv4(address)) => is_public(address.into()),
        Some(Host::Ipv6(address)) => is_public(address.into()),
        None => false,
    };
    level == Level::Open
        && named
        && PROXIES.iter().any(|name| std::env::var_os(name).is_some_and(|text| !text.is_empty()))
}

/// A name in its one spelling.
fn plain(host: Host) -> Host {
    match host {
        Host::Domain(name) => Host::Domain(name.trim_end_matches('.').to_ascii_lowercase()),
        address => address,
    }
}

fn parse_allowed(entry: &str) -> Option<(Host, Option<u16>)> {
    if let Ok(address) = entry.parse::<IpAddr>() {
        return Some((address_host(address), None));
    }
    if let Ok(address) = entry.parse::<SocketAddr>() {
        return Some((address_host(address.ip()), Some(address.port())));
    }
    let (name, port) = match entry.rsplit_once(':') {
        Some((name, port)) if !name.contains(':') => (name, Some(port.parse().ok()?)),
        _ => (entry, None),
    };
    Host::parse(name).ok().map(|host| (plain(host), port))
}

fn address_host(address: IpAddr) -> Host {
    match address {
        IpAddr::V4(address) => Host::Ipv4(address),
        IpAddr::V6(address) => Host::Ipv6(address),
    }
}

fn refused(detail: impl Into<String>) -> Failure {
    Failure::new(RemoteFault::Forbidden, detail)
}

/// The refusal of a host that is not public.
pub(crate) fn private(host: &str) -> Failure {
    refused(format!(
        "{host} is not a public address, and only public ones may be asked here; name it among the allowed hosts if it \
         is meant"
    ))
}

/// Whether an address belongs to the internet at large rather than to this machine, its networks, or nobody.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !matches!(
        (a, b, c),
        (0 | 10 | 127, _, _)            // this network, private, loopback
            | (100, 64..=127, _)        // carrier-grade NAT
            | (169, 254, _)             // link-local, metadata services
            | (172, 16..=31, _)         // private
            | (192, 168, _)             // private
            | (192, 0, 0 | 2)           // protocol assignments, documentation
            | (192, 88, 99)             // 6to4 relays
            | (198, 18..=19, _)         // benchmarks
            | (198, 51, 100)            // documentation
            | (203, 0, 113)             // documentation
            | (224..=255, _, _) // multicast, reserved, broadcast
    )
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let parts = address.segments();
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match parts {
        // An IPv4 address in disguise: mapped, or behind NAT64, which is how networks without IPv4 reach all of it.
        [0, 0, 0, 0, 0, 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Teredo, benchmarks, ORCHID and the like; documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Global unicast; all else is loopback, link-local, unique-local, multicast, IPv4-compatible or unassigned.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

/// A resolver that knows public addresses only.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PublicNames;

/// What it says about other names.
#[derive(Debug)]
pub(crate) struct NotPublic(pub(crate) String);

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} leads to no public address", self.0)
    }
}

impl std::error::Error for NotPublic {}

impl Resolve for PublicNames {
    fn resolve(&self, name: Name) -> Resolving {
        let name = name.as_str().to_owned();
        Box::pin(async move {
            let found = lookup(&name).await?;
            if found.is_empty() {
                return Err(io::Error::from(io::ErrorKind::NotFound).into());
            }
            // One private address among public ones is enough to refuse: which of them is tried is not ours to say.
            if found.iter().any(|address| !is_public(address.ip())) {
                return Err(NotPublic(name).into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strict() -> Guard {
        let allowed = ["127.0.0.1:8080", "tiles.example", "[::1]:81"].map(str::to_owned).to_vec();
        Guard::new(&RemoteOptions::default().with_public_only(true).with_allowed_hosts(allowed)).unwrap()
    }

    fn check(address: &str) -> Result<Level, RemoteFault> {
        strict().check(&Url::parse(address).unwrap(), false).map_err(|failure| failure.fault)
    }

    #[test]
    fn private_addresses_are_refused_in_every_spelling() {
        for host in [
            "127.0.0.1",
            "2130706433",
            "0177.0.0.1",
            "0x7f.1",
            "0x7f000001",
            "127.1",
            "0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "0.0.0.0",
            "224.0.0.1",
            "255.255.255.255",
            "192.0.2.1",
            "198.18.0.1",
            "localhost",
            "LocalHost.",
            "a.localhost",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:10.0.0.1]",
            "[::127.0.0.1]",
            "[64:ff9b::10.0.0.1]",
            "[64:ff9b:1::1]",
            "[2002:7f00:1::]",
            "[2001:0:1::1]",
            "[fe80::1]",
            "[fd00::1]",
            "[ff02::1]",
            "[2001:db8::1]",
            "%31%32%37.0.0.1",
            "127。0。0。1",
        ] {
            assert_eq!(check(&format!("HTTP://{host}/a.tif")), Err(RemoteFault::Forbidden), "{host}");
        }
    }

    #[test]
    fn public_addresses_are_not() {
        for host in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "[2600::1]", "[64:ff9b::808:808]", "example.org"] {
            assert_eq!(check(&format!("https://{host}/a.tif")), Ok(Level::Public), "{host}");
        }
    }

    #[test]
    fn allowed_hosts_are_allowed_on_their_port() {
        assert_eq!(check("http://127.0.0.1:8080/"), Ok(Level::Direct));
        assert_eq!(check("http://127.0.0.1:8081/"), Err(RemoteFault::Forbidden));
        assert_eq!(check("http://[::1]:81/"), Ok(Level::Direct));
        assert_eq!(check("https://TILES.example./"), Ok(Level::Direct));
        assert!(parse_allowed("a:b").is_none());
    }

    #[test]
    fn only_a_public_host_may_not_lead_to_private_ones() {
        let open = Guard::new(&RemoteOptions::default()).unwrap();
        let url = Url::parse("http://10.0.0.1/").unwrap();
        assert_eq!(open.check(&url, false), Ok(Level::Open));
        assert_eq!(open.check(&url, true).map_err(|failure| failure.fault), Err(RemoteFault::Forbidden));
        let here = Url::parse("http://localhost:80/").unwrap();
        assert_eq!(open.check(&here, false), Ok(Level::Direct), "a proxy has a loopback of its own");
        let file = Url::parse("file:///etc/passwd").unwrap();
        assert_eq!(open.check(&file, false).map_err(|failure| failure.fault), Err(RemoteFault::Forbidden));
    }
}
