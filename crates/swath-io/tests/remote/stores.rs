//! Object stores: signatures, requests, and messages of their errors.

use swath_io::{RemoteFault, RemoteOptions, RemoteSource, Source, conformance};

use super::{
    SIZE, fault, options, read,
    server::{Act, Server, bytes, part, part_with, plain},
};

fn good() -> Server {
    let data = bytes(SIZE);
    let date = "Last-Modified: Mon, 16 Nov 2026 00:00:00 GMT";
    Server::new(move |_, asked| Act::Send(part_with(&data, asked, &["ETag: \"one\"", date])))
}

fn s3(server: &Server) -> RemoteOptions {
    options()
        .with_endpoint(format!("http://127.0.0.1:{}", server.port))
        .with_region("eu-west-1")
        .with_setting("aws_access_key_id", "AKIDEXAMPLE")
        .with_setting("aws_secret_access_key", "very-secret-key")
}

#[test]
fn s3_requests_are_signed_and_conditional() {
    let server = good();
    let source = RemoteSource::open("s3://bucket/a b/ü+%20#?.tif", &s3(&server)).unwrap();
    conformance::check_source(&source, &bytes(SIZE));
    let asked = server.asked();
    assert_eq!(asked[0].line, "GET /bucket/a%20b/%C3%BC%2B%2520%23%3F.tif HTTP/1.1");
    let signature = asked[0].header("authorization").unwrap();
    assert!(signature.contains("AKIDEXAMPLE/") && signature.contains("/eu-west-1/s3/"), "{signature}");
    assert_eq!((asked[0].header("if-match"), asked[0].range()), (None, (0, 32767)));
    assert_eq!(asked[1].header("if-match"), Some("\"one\""));
}

#[test]
fn s3_without_credentials_is_not_signed() {
    let server = good();
    let source = RemoteSource::open("s3a://bucket/a.tif", &s3(&server).with_anonymous(true)).unwrap();
    read(&source).unwrap();
    assert!(server.asked().iter().all(|asked| asked.header("authorization").is_none()));
    assert_eq!(source.traffic().unwrap().requests, 2);
}

#[test]
fn s3_errors_are_distinguished_and_keep_secrets() {
    let missing = "<Error><Code>NoSuchKey</Code><Message>not there</Message><Key>very-secret-key</Key></Error>";
    for (status, body, expected, words) in [
        ("404 Not Found", missing, RemoteFault::Missing, "(NoSuchKey)"),
        ("403 Forbidden", "<Error><Code>AccessDenied</Code></Error>", RemoteFault::Denied, "anonymous"),
        ("412 No", "", RemoteFault::Changed, "open it again"),
    ] {
        let server = Server::new(move |_, _| plain(status, &[], body.as_bytes()));
        let (fault, detail) = fault(RemoteSource::open("s3://bucket/a.tif", &s3(&server)));
        assert_eq!((fault, server.asked().len()), (expected, 1), "{detail}");
        assert!(detail.contains(words) && !detail.contains("very-secret-key"), "{detail}");
    }
}

#[test]
fn s3_redirects_name_the_region_and_are_not_followed() {
    let hidden = good();
    let to = format!("Location: {}", hidden.url("bucket/a.tif"));
    let server = Server::new(move |_, _| plain("301 Moved", &[&to, "x-amz-bucket-region: us-west-2"], b""));
    let (fault, detail) = fault(RemoteSource::open("s3://bucket/a.tif", &s3(&server)));
    assert_eq!(fault, RemoteFault::Protocol);
    assert!(detail.contains("us-west-2"), "{detail}");
    assert!(hidden.asked().is_empty());
}

#[test]
fn s3_failures_are_retried_once_each() {
    let data = bytes(SIZE);
    let server = Server::new(move |number, asked| match number {
        0 => plain("503 Slow Down", &[], b"<Error><Code>SlowDown</Code></Error>"),
        1 => {
            let mut cut = part_with(&data, asked, &["ETag: \"one\""]);
            cut.truncate(cut.len() - 1);
            Act::SendAndClose(cut)
        }
        _ => part(&data, asked),
    });
    let source = RemoteSource::open("s3://bucket/a.tif", &s3(&server)).unwrap();
    assert_eq!(server.asked().len(), 3);
    read(&source).unwrap();
    let traffic = source.traffic().unwrap();
    assert_eq!((traffic.requests, traffic.retries), (4, 2));
}

#[test]
fn s3_changes_are_noticed() {
    let data = bytes(SIZE);
    let server = Server::new(move |number, asked| {
        let tag = format!("ETag: \"{number}\"");
        Act::Send(part_with(&data, asked, &[&tag]))
    });
    let source = RemoteSource::open("s3://bucket/a.tif", &s3(&server)).unwrap();
    assert_eq!(fault(read(&source)).0, RemoteFault::Changed);
}

#[test]
fn stores_at_private_addresses_are_refused_with_public_only() {
    let server = good();
    let (fault, _) = fault(RemoteSource::open("s3://bucket/a.tif", &s3(&server).with_public_only(true)));
    assert_eq!(fault, RemoteFault::Forbidden);
    assert!(server.asked().is_empty());
}

#[test]
fn gcs_is_read_with_a_token_and_without() {
    let server = good();
    let gcs = options().with_endpoint(format!("http://127.0.0.1:{}", server.port));
    let token = gcs.clone().with_setting("google_bearer_token", "a-token");
    conformance::check_source(&RemoteSource::open("gs://bucket/a b.tif", &token).unwrap(), &bytes(SIZE));
    let asked = server.asked();
    assert_eq!(asked[0].line, "GET /bucket/a%20b%2Etif HTTP/1.1");
    assert_eq!(
        (asked[0].header("authorization"), asked[1].header("if-match")),
        (Some("Bearer a-token"), Some("\"one\""))
    );
    let before = asked.len();
    RemoteSource::open("gcs://bucket/a.tif", &gcs.with_anonymous(true)).unwrap();
    assert!(server.asked()[before..].iter().all(|asked| asked.header("authorization").is_none()));
}

#[test]
fn azure_is_read_with_a_key() {
    let server = good();
    let azure = options()
        .with_endpoint(format!("http://127.0.0.1:{}", server.port))
        .with_setting("azure_storage_account", "devstoreaccount1")
        .with_setting("azure_storage_account_key", "c2VjcmV0");
    let source = RemoteSource::open("az://container/a b.tif", &azure).unwrap();
    conformance::check_source(&source, &bytes(SIZE));
    let asked = server.asked();
    assert_eq!(asked[0].line, "GET /devstoreaccount1/container/a%20b.tif HTTP/1.1");
    assert!(asked[0].header("authorization").unwrap().starts_with("SharedKey devstoreaccount1:"));
    assert_eq!(asked[1].header("if-match"), Some("\"one\""));
}

#[test]
fn addresses_that_cannot_be_used_say_why() {
    let azure = options().with_setting("azure_storage_account_key", "c2VjcmV0");
    for (address, options, words) in [
        ("s3://bucket", options(), "no object"),
        ("s3://bucket/", options(), "no object"),
        ("s3://buck@et/a.tif", options(), "not a valid bucket name"),
        ("s3://bucket//a.tif", options(), "slash"),
        ("s3://bucket/../a.tif", options(), "key"),
        ("s3://bucket/a.tif", options().with_region("x.evil/"), "region"),
        ("s3://bucket/a.tif", options().with_endpoint("localhost:9000"), "http://"),
        ("s3://bucket/a.tif", options().with_setting("acess_key", "x"), "acess_key"),
        ("abfss://c1@account.evil.example/a.tif", azure, "not an Azure host"),
        ("http://", options(), "address"),
    ] {
        let (fault, detail) = fault(RemoteSource::open(address, &options));
        assert_eq!(fault, RemoteFault::Setup, "{address}: {detail}");
        assert!(detail.contains(words), "{address}: {detail}");
    }
}
