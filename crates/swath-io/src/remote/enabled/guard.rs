//! Decides which addresses may be contacted, so that no file or server can direct requests to private machines.

use std::{
    fmt, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use super::{failure::Failure, names::lookup};
use crate::fault::RemoteFault;
use crate::remote::options::Origin;
use crate::remote::options::RemoteOptions;

/// The origin of an address.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum NamedBy {
    /// The caller, or a file that the caller opened.
    #[default]
    Caller,
    /// A server that is not public redirected there.
    Private,
    /// A public server redirected there, or one that a proxy hides.
    Public,
}

/// The addresses that a connection may use. Names are checked when they are resolved for the connection, so that a name that
/// resolves differently the second time does not get around the check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reach {
    Any,
    /// All except link-local ones, where clouds run the services that provide credentials.
    BeyondLink,
    Public,
}

/// How to connect to a host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Connect {
    /// Through the system's proxy, if there is one. A proxy resolves names itself, unseen, and might reach another host of that
    /// name: its own loopback, for example.
    pub(crate) proxied: bool,
    pub(crate) reach: Reach,
}

impl Connect {
    /// For the fixed address of a metadata service.
    pub(crate) const METADATA: Self = Self { proxied: false, reach: Reach::Any };
}

/// The addresses that a caller allows.
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
            // A caller who names private hosts means these and no others.
            strict: options.public_only || !options.allowed_hosts.is_empty() || options.origin == Origin::File,
            allowed: allowed.collect::<Result<_, _>>()?,
        })
    }

    /// How to connect to `url`.
    ///
    /// # Errors
    /// When the address is not allowed.
    pub(crate) fn check(&self, url: &Url, named_by: NamedBy) -> Result<Connect, Failure> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(refused(format!("{}: only http and https are supported", url.scheme())));
        }
        let Some(host) = url.host() else {
            return Err(Failure::new(RemoteFault::Setup, "the address has no host"));
        };
        let host = plain(host.to_owned());
        let port = url.port_or_known_default();
        let address = match host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some(IpAddr::V4(address)),
            Host::Ipv6(address) => Some(IpAddr::V6(address)),
        };
        // Even an allowed host must not be link-local if a server redirected there.
        let beyond = if named_by == NamedBy::Caller { Reach::Any } else { Reach::BeyondLink };
        if address.is_some_and(|address| !beyond.includes(address)) {
            return Err(beyond.refusal(&host.to_string()));
        }
        let allowed = self.allowed.iter().any(|(name, only)| *name == host && (only.is_none() || *only == port));
        if allowed || (!self.strict && named_by != NamedBy::Public) {
            return Ok(Connect { proxied: !(self.strict || is_loopback(&host)), reach: beyond });
        }
        if is_loopback(&host) || address.is_some_and(|address| !is_public(address)) {
            return Err(Reach::Public.refusal(&host.to_string()));
        }
        Ok(Connect { proxied: false, reach: Reach::Public })
    }
}

impl Reach {
    pub(crate) fn includes(self, address: IpAddr) -> bool {
        match self {
            Self::Any => true,
            Self::BeyondLink => !is_link_local(address),
            Self::Public => is_public(address),
        }
    }

    /// Returns the error for a host that this reach excludes.
    pub(crate) fn refusal(self, host: &str) -> Failure {
        refused(match self {
            Self::Any | Self::BeyondLink => {
                format!(
                    "{host} is a link-local address, such as metadata services have: redirects to it are not followed"
                )
            }
            Self::Public => format!(
                "{host} is not a public address, and the options allow only public ones; add it to the allowed hosts \
                 if you trust it"
            ),
        })
    }
}

/// Whether a host is visibly this machine.
fn is_loopback(host: &Host) -> bool {
    match host {
        Host::Domain(name) => name == "localhost" || name.ends_with(".localhost"),
        Host::Ipv4(address) => address.is_loopback(),
        Host::Ipv6(address) => address.to_canonical().is_loopback(),
    }
}

/// Whether a proxy may have hidden the responding host, which must then be assumed to be public.
pub(crate) fn is_hidden(url: &Url, connect: Connect) -> bool {
    const PROXIES: [&str; 6] = ["http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"];
    let named = match url.host() {
        Some(Host::Domain(name)) => !(name == "localhost" || name.ends_with(".localhost")),
        Some(Host::Ipv4(address)) => is_public(address.into()),
        Some(Host::Ipv6(address)) => is_public(address.into()),
        None => false,
    };
    connect.proxied && named && PROXIES.iter().any(|name| std::env::var_os(name).is_some_and(|text| !text.is_empty()))
}

/// Normalises the spelling of a name.
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

/// Whether an address belongs to the public internet, not to this machine, its networks, or a reserved range.
pub(crate) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

/// Whether an address is link-local, or one of the other addresses of clouds' metadata services: Azure's and Alibaba's, and those
/// of AWS and Google over IPv6.
fn is_link_local(address: IpAddr) -> bool {
    let address = match address {
        IpAddr::V4(address) => address,
        IpAddr::V6(address) => match address.segments() {
            [0xfd00, 0xec2, 0, 0, 0, 0, 0, 0x23 | 0x254] | [0xfd20, 0xce, 0, 0, 0, 0, 0, 0x254] => return true,
            parts => match embedded(parts) {
                Some(address) => address,
                None => return address.is_unicast_link_local(),
            },
        },
    };
    address.is_link_local() || matches!(address.octets(), [168, 63, 129, 16] | [100, 100, 100, 200])
}

/// The IPv4 address that an IPv6 address embeds: mapped, compatible, NAT64 (through which networks without IPv4 reach all of it), or
/// 6to4.
fn embedded(parts: [u16; 8]) -> Option<Ipv4Addr> {
    let (high, low) = match parts {
        [0, 0, 0, 0, 0, 0 | 0xffff, high, low] | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => (high, low),
        [0x2002, high, low, ..] => (high, low),
        _ => return None,
    };
    let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
    Some(Ipv4Addr::new(a, b, c, d))
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    !is_link_local(address.into())
        && !matches!(
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
    match address.segments() {
        // IPv4-compatible addresses are obsolete.
        [0, 0, 0, 0, 0, 0, ..] => false,
        // Teredo, benchmarks, ORCHID and the like; documentation.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        [0x3fff, second, ..] if second < 0x1000 => false,
        parts => match embedded(parts) {
            Some(address) => is_public_v4(address),
            // Global unicast. All others are loopback, link-local, unique-local, multicast or unassigned.
            None => address.segments()[0] & 0xe000 == 0x2000,
        },
    }
}

/// A resolver that returns only addresses within reach.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Names(pub(crate) Reach);

/// The error of [`Names`] for a host without an address within reach.
#[derive(Debug)]
pub(crate) struct OutOfReach(pub(crate) Reach);

impl fmt::Display for OutOfReach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the name resolves to an address that is not allowed ({:?})", self.0)
    }
}

impl std::error::Error for OutOfReach {}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (name, reach) = (name.as_str().to_owned(), self.0);
        Box::pin(async move {
            let found = lookup(&name).await?;
            if found.is_empty() {
                return Err(io::Error::from(io::ErrorKind::NotFound).into());
            }
            // A single address out of reach is enough to fail, since we do not choose which address is tried.
            if found.iter().any(|address| !reach.includes(address.ip())) {
                return Err(OutOfReach(reach).into());
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

    fn check(address: &str) -> Result<Connect, RemoteFault> {
        strict().check(&Url::parse(address).unwrap(), NamedBy::Caller).map_err(|failure| failure.fault)
    }

    const OPEN: Connect = Connect { proxied: true, reach: Reach::Any };
    const DIRECT: Connect = Connect { proxied: false, reach: Reach::Any };
    const PUBLIC: Connect = Connect { proxied: false, reach: Reach::Public };

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
    fn public_addresses_are_not_refused() {
        for host in ["8.8.8.8", "172.32.0.1", "100.128.0.1", "[2600::1]", "[64:ff9b::808:808]", "example.org"] {
            assert_eq!(check(&format!("https://{host}/a.tif")), Ok(PUBLIC), "{host}");
        }
    }

    #[test]
    fn allowed_hosts_are_allowed_on_their_port() {
        assert_eq!(check("http://127.0.0.1:8080/"), Ok(DIRECT));
        assert_eq!(check("http://127.0.0.1:8081/"), Err(RemoteFault::Forbidden));
        assert_eq!(check("http://[::1]:81/"), Ok(DIRECT));
        assert_eq!(check("https://TILES.example./"), Ok(DIRECT));
        assert!(parse_allowed("a:b").is_none());
    }

    #[test]
    fn allowing_private_hosts_refuses_all_other_private_ones() {
        let options =
            RemoteOptions::default().with_allowed_hosts(vec!["10.0.0.1".to_owned(), "nas.example".to_owned()]);
        let guard = Guard::new(&options).unwrap();
        let check = |address: &str, named_by| {
            guard.check(&Url::parse(address).unwrap(), named_by).map_err(|failure| failure.fault)
        };
        for named_by in [NamedBy::Caller, NamedBy::Private, NamedBy::Public] {
            for host in ["10.0.0.2", "127.0.0.1", "localhost", "169.254.169.254", "[::1]"] {
                assert_eq!(
                    check(&format!("http://{host}/"), named_by),
                    Err(RemoteFault::Forbidden),
                    "{host}, {named_by:?}"
                );
            }
            assert_eq!(check("http://tiles.example/", named_by), Ok(PUBLIC));
        }
        assert_eq!(check("http://10.0.0.1/", NamedBy::Caller), Ok(DIRECT));
        assert_eq!(check("http://nas.example/", NamedBy::Caller), Ok(DIRECT));
    }

    #[test]
    fn only_public_hosts_may_not_redirect_to_private_ones() {
        let open = Guard::new(&RemoteOptions::default()).unwrap();
        let url = Url::parse("http://10.0.0.1/").unwrap();
        assert_eq!(open.check(&url, NamedBy::Caller), Ok(OPEN));
        assert_eq!(open.check(&url, NamedBy::Public).map_err(|failure| failure.fault), Err(RemoteFault::Forbidden));
        let here = Url::parse("http://localhost:80/").unwrap();
        assert_eq!(open.check(&here, NamedBy::Caller), Ok(DIRECT), "a proxy has a loopback of its own");
        let file = Url::parse("file:///etc/passwd").unwrap();
        assert_eq!(open.check(&file, NamedBy::Caller).map_err(|failure| failure.fault), Err(RemoteFault::Forbidden));
    }

    #[test]
    fn no_redirect_leads_to_a_link_local_address() {
        let allowed = vec!["169.254.169.254".to_owned()];
        let guards = [
            RemoteOptions::default(),
            RemoteOptions::default().with_public_only(true),
            RemoteOptions::default().with_allowed_hosts(allowed),
        ];
        for options in guards {
            let guard = Guard::new(&options).unwrap();
            for host in [
                "169.254.169.254",
                "169.254.0.1",
                "2852039166",
                "0xA9FEA9FE",
                "0251.0376.0251.0376",
                "[fe80::1]",
                "[febf::1]",
                "[::ffff:169.254.169.254]",
                "[::a9fe:a9fe]",
                "[64:ff9b::169.254.169.254]",
                "[2002:a9fe:a9fe::]",
                "[fd00:ec2::254]",
                "[fd00:ec2::23]",
                "[fd20:ce::254]",
                "168.63.129.16",
                "100.100.100.200",
            ] {
                let url = Url::parse(&format!("HTTP://{host}/latest/meta-data/")).unwrap();
                for named_by in [NamedBy::Private, NamedBy::Public] {
                    let found = guard.check(&url, named_by).map_err(|failure| failure.fault);
                    assert_eq!(found, Err(RemoteFault::Forbidden), "{host}, {named_by:?}");
                }
            }
            let name = Url::parse("http://metadata.google.internal/").unwrap();
            let connect = guard.check(&name, NamedBy::Private).unwrap();
            assert_ne!(connect.reach, Reach::Any, "the name is checked when it is resolved");
        }
        let open = Guard::new(&RemoteOptions::default()).unwrap();
        let url = Url::parse("http://169.254.169.254/").unwrap();
        assert_eq!(open.check(&url, NamedBy::Caller), Ok(OPEN), "the caller named it");
    }
}
