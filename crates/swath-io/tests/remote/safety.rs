//! Redirects, private addresses, secrets and budgets.

use std::sync::Arc;

use swath_io::{Origin, RemoteFault, RemoteOptions, RemoteSource, Source};

use super::{
    SIZE, fault, open, options, read,
    server::{Act, Server, bytes, part, plain},
};

fn good() -> Server {
    let data = bytes(SIZE);
    Server::new(move |_, asked| part(&data, asked))
}

fn redirect(to: String) -> Server {
    Server::new(move |_, _| plain("302 Found", &[&format!("Location: {to}")], b"elsewhere"))
}

#[test]
fn a_redirect_is_followed_once_and_remembered() {
    let behind = good();
    let front = redirect(behind.url("b.tif"));
    let source = open(&front.url("a.tif"));
    read(&source).unwrap();
    assert_eq!((front.asked().len(), behind.asked().len()), (1, 2));
}

#[test]
fn an_expired_redirect_is_requested_again() {
    let data = bytes(SIZE);
    let behind = Server::new(move |number, asked| match number {
        1 => plain("403 Expired", &[], b""),
        _ => part(&data, asked),
    });
    let front = redirect(behind.url("b.tif"));
    read(&open(&front.url("a.tif"))).unwrap();
    assert_eq!((front.asked().len(), behind.asked().len()), (2, 3));
}

#[test]
fn a_redirect_loop_ends() {
    let server = Server::new(|_, _| plain("307 Again", &["Location: /a.tif"], b""));
    let (fault, _) = fault(RemoteSource::open(&server.url("a.tif"), &options().with_redirects(3)));
    assert_eq!((fault, server.asked().len()), (RemoteFault::Forbidden, 4));
}

#[test]
fn a_redirect_to_a_file_is_refused() {
    for to in ["file:///etc/passwd", "ftp://127.0.0.1/a", "gopher://127.0.0.1/a"] {
        let server = redirect(to.to_owned());
        assert_eq!(fault(RemoteSource::open(&server.url("a.tif"), &options())).0, RemoteFault::Forbidden, "{to}");
    }
}

#[test]
fn a_redirect_to_a_private_address_is_refused() {
    let hidden = good();
    for host in ["127.0.0.1", "2130706433", "0177.0.0.1", "0x7f.1", "localhost", "[::ffff:127.0.0.1]"] {
        let front = redirect(format!("HTTP://{host}:{}/a.tif", hidden.port));
        let strict = options().with_public_only(true).with_allowed_hosts(vec![format!("127.0.0.1:{}", front.port)]);
        let alone = options().with_allowed_hosts(vec![format!("127.0.0.1:{}", front.port)]);
        for options in [strict, alone] {
            let (fault, detail) = fault(RemoteSource::open(&front.url("a.tif"), &options));
            assert_eq!(fault, RemoteFault::Forbidden, "{host}: {detail}");
        }
        assert_eq!(front.asked().len(), 2);
    }
    assert!(hidden.asked().is_empty());
}

#[test]
fn private_addresses_are_refused_in_every_spelling() {
    let hidden = good();
    let others = options().with_allowed_hosts(vec!["tiles.example".to_owned(), "127.0.0.1:1".to_owned()]);
    for strict in [options().with_public_only(true), options().with_origin(Origin::File), others] {
        for host in ["127.0.0.1", "2130706433", "017700000001", "0x7f000001", "127.1", "0", "[::1]", "[::ffff:7f00:1]"]
        {
            let address = format!("HTTP://{host}:{}/a.tif", hidden.port);
            assert_eq!(fault(RemoteSource::open(&address, &strict)).0, RemoteFault::Forbidden, "{host}");
        }
    }
    assert!(hidden.asked().is_empty());
}

#[test]
fn a_name_that_resolves_to_a_private_address_is_refused() {
    // The machine's own name resolves to the machine itself, and is not a literal address that could be refused by its form.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let hidden = good();
    for host in ["localhost", "localhost.", "ip6-localhost", name.trim()].into_iter().filter(|host| !host.is_empty()) {
        let address = format!("http://{host}:{}/a.tif", hidden.port);
        let quick = options().with_public_only(true).with_retries(0);
        let (fault, detail) = fault(RemoteSource::open(&address, &quick));
        // A machine may also not know one of these names.
        let unknown = matches!(fault, RemoteFault::Missing | RemoteFault::Unavailable) && detail.contains("host");
        assert!(fault == RemoteFault::Forbidden || (unknown && !host.starts_with("localhost")), "{host}: {detail}");
    }
    assert!(hidden.asked().is_empty());
}

#[test]
fn allowed_hosts_are_contacted() {
    let server = good();
    let allowed = options().with_allowed_hosts(vec!["localhost".to_owned()]);
    for options in [allowed.clone().with_public_only(true), allowed] {
        RemoteSource::open(&format!("http://localhost:{}/a.tif", server.port), &options).unwrap();
    }
}

#[test]
fn credentials_go_to_their_own_host_only() {
    let behind = good();
    let front = redirect(format!("http://localhost:{}/b.tif", behind.port));
    let address = format!("http://me:p%40ss@127.0.0.1:{}/a.tif", front.port);
    let source = RemoteSource::open(&address, &options().with_header("X-Token", "secret-token")).unwrap();
    read(&source).unwrap();
    let first = &front.asked()[0];
    assert_eq!(
        (first.header("authorization"), first.header("x-token")),
        (Some("Basic bWU6cEBzcw=="), Some("secret-token"))
    );
    for asked in behind.asked() {
        assert_eq!((asked.header("authorization"), asked.header("x-token")), (None, None));
        assert!(asked.range().1 > 0, "the range goes along");
    }
}

#[test]
fn secrets_are_in_no_message() {
    // The server repeats whatever it was sent.
    let server = Server::new(|_, asked| {
        let token = asked.header("x-token").unwrap_or_default();
        let body = format!("<Error><Code>No</Code><Message>{} {token}</Message></Error>", asked.line);
        plain("403 No", &[], body.as_bytes())
    });
    let address = format!("http://me:hunter2@127.0.0.1:{}/a.tif?sig=hush", server.port);
    let with = options().with_header("X-Token", "secret-token").with_setting("aws_secret_access_key", "private-key");
    let (_, refused) = fault(RemoteSource::open(&address, &with));
    let (_, unreachable) =
        fault(RemoteSource::open("http://me:hunter2@127.0.0.1:1/a.tif?sig=hush", &with.clone().with_retries(0)));
    let shown = [refused, unreachable, format!("{with:?}"), {
        let good = good();
        let source =
            RemoteSource::open(&format!("http://me:hunter2@127.0.0.1:{}/a?sig=hush", good.port), &with).unwrap();
        format!("{source:?} {}", source.name())
    }];
    for text in shown {
        for secret in ["hunter2", "hush", "secret-token", "private-key"] {
            assert!(!text.contains(secret), "{secret} in {text}");
        }
    }
}

#[test]
fn reserved_headers_are_refused() {
    for name in ["Range", "host", "a b", "If-Match"] {
        let result = RemoteSource::open("http://127.0.0.1:1/", &RemoteOptions::default().with_header(name, "x"));
        assert_eq!(fault(result).0, RemoteFault::Setup, "{name}");
    }
}

#[test]
fn bytes_and_requests_keep_to_their_budgets() {
    let server = good();
    let few = RemoteSource::open(&server.url("a.tif"), &options().with_max_bytes(33_000)).unwrap();
    assert_eq!(fault(read(&few)).0, RemoteFault::Budget);
    assert_eq!(server.asked().len(), 1, "what is too much is not asked for");
    let mut buffer = [0; 200];
    few.read_at(100_000, &mut buffer).unwrap();
    assert_eq!(few.traffic().unwrap().received, 32_968);
    let once = RemoteSource::open(&server.url("a.tif"), &options().with_max_requests(2)).unwrap();
    read(&once).unwrap();
    assert_eq!(fault(read(&once)).0, RemoteFault::Budget);
    let tiny = RemoteSource::open(&server.url("a.tif"), &options().with_max_bytes(100)).unwrap();
    assert_eq!((tiny.size().unwrap(), tiny.traffic().unwrap().received), (SIZE as u64, 100));
}

#[test]
fn failures_count_against_the_budget_of_requests() {
    let server = Server::new(|_, _| plain("503 No", &[], b""));
    let result = RemoteSource::open(&server.url("a.tif"), &options().with_max_requests(2));
    assert_eq!((fault(result).0, server.asked().len()), (RemoteFault::Budget, 2));
}

#[test]
fn connections_are_used_again() {
    let connections = Arc::new(std::sync::Mutex::new(std::collections::BTreeSet::new()));
    let data = bytes(SIZE);
    let seen = Arc::clone(&connections);
    let server = Server::new(move |_, asked| {
        // Every connection has a thread of its own.
        seen.lock().unwrap().insert(format!("{:?}", std::thread::current().id()));
        part(&data, asked)
    });
    for _ in 0..20 {
        read(&open(&server.url("a.tif"))).unwrap();
    }
    assert_eq!(server.asked().len(), 40);
    // A request that comes before the last answer's connection is back among the idle ones opens another.
    let opened = connections.lock().unwrap().len();
    assert!(opened <= 10, "{opened} connections for 40 requests of 20 handles");
}

#[test]
fn a_cut_connection_between_requests_does_no_harm() {
    let data = bytes(SIZE);
    let server = Server::new(move |_, asked| match part(&data, asked) {
        Act::Send(bytes) => Act::SendAndClose(bytes),
        act => act,
    });
    let source = open(&server.url("a.tif"));
    for _ in 0..5 {
        read(&source).unwrap();
    }
}
