"""Reads from object stores: S3 (moto), Azure (Azurite) and Google (a server of our own), as their users reach them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import swath
from harness import Swath
from remote import Request
from remote_faults import PASSING, at
from remote_readers import equal_pixels
from remote_stores import BUCKET, TOKEN, GcsServer, GcsStore, Proxy, Store
from swath import _errors as errors

pytest_plugins = ("remote_fixtures",)

STORES = ("s3", "azure", "gcs")
KEYS = (
    "plain.tif",
    "folder/deeper/file.tif",
    "with space.tif",
    "ünï/文.tif",
    "a+b.tif",
    "100%.tif",
    "a%20b.tif",
    "a#b.tif",
)


@cache
def pixels(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 60_000, (640, 640), "u2")


@cache
def file(seed: int = 1) -> bytes:
    return swath.to_geotiff(pixels(seed), None, compression="deflate", tile_size=64, crs=32633, cog=True)


@pytest.fixture(params=STORES)
def store(request: pytest.FixtureRequest) -> Store:
    return request.getfixturevalue(request.param)


@pytest.fixture
def proxied(store: Store) -> Iterator[tuple[Store, Proxy, dict[str, Any]]]:
    """A store, the proxy before it, and the options for it."""
    store.put("plain.tif", file())
    address = store.url.partition("//")[2].partition("/")[0]
    with Proxy(f"http://{address}") as proxy:
        yield store, proxy, store.at(proxy.url)


def check(address: str, seed: int = 1, **options: Any) -> None:
    """Reads with a new handle: `swath.read` may keep one that was opened in another environment."""
    equal_pixels(np.asarray(swath.Dataset(address, storage_options=options or None).read())[0], pixels(seed))


# ---------------------------------------------------------------------------------------------------------------- reads


def test_objects_are_read(store: Store) -> None:
    for key in KEYS:
        store.put(key, file())
        check(store.address(key), **store.options)


def test_lazy_arrays_are_read(store: Store) -> None:
    store.put("plain.tif", file())
    array = swath.open_geotiff(store.address("plain.tif"), chunks=256, storage_options=store.options)
    equal_pixels(array.values.reshape(640, 640), pixels())


def test_a_missing_object_is_reported(store: Store) -> None:
    with pytest.raises(errors.MissingError) as raised:
        swath.Dataset(store.address("none.tif"), storage_options=store.options)
    assert "none.tif" in str(raised.value)
    with pytest.raises((errors.MissingError, errors.DeniedError)):
        swath.Dataset(f"{store.scheme}://no-such-bucket/none.tif", storage_options=store.options)


def test_opening_is_one_request(proxied: tuple[Store, Proxy, dict[str, Any]]) -> None:
    store, proxy, options = proxied
    dataset = swath.Dataset(store.address("plain.tif"), storage_options=options)
    assert dataset.metadata()
    assert len(proxy.requests) == 1
    assert dataset.remote_stats["requests"] == 1


def test_later_requests_name_the_version(proxied: tuple[Store, Proxy, dict[str, Any]]) -> None:
    store, proxy, options = proxied
    check(store.address("plain.tif"), **options)
    assert len(proxy.requests) > 1
    assert "if-match" not in proxy.requests[0].headers
    assert all("if-match" in request.headers for request in proxy.requests[1:])


def test_an_object_that_changes_is_not_mixed(proxied: tuple[Store, Proxy, dict[str, Any]]) -> None:
    store, proxy, options = proxied

    def change(request: Request) -> None:
        if request.number == 2:
            store.put("plain.tif", file(2))

    proxy.script = change
    with pytest.raises(errors.ChangedError, match="open it again"):
        check(store.address("plain.tif"), **options)
    proxy.script = None
    check(store.address("plain.tif"), 2, **options)


def test_a_read_that_opens_the_object_itself_opens_it_again(proxied: tuple[Store, Proxy, dict[str, Any]]) -> None:
    store, proxy, options = proxied
    store.put("once.tif", file())
    proxy.script = lambda request: store.put("once.tif", file(2)) if request.number == 2 else None
    got = np.asarray(swath.read(store.address("once.tif"), storage_options=options))[0]
    equal_pixels(got, pixels(2))


@pytest.mark.parametrize("name", ["status 503", "reset at once", "closed in the body"])
def test_transient_faults_are_retried(proxied: tuple[Store, Proxy, dict[str, Any]], name: str) -> None:
    store, proxy, options = proxied
    proxy.script = at({1: PASSING[name], 3: PASSING[name]})
    dataset = swath.Dataset(store.address("plain.tif"), storage_options=options)
    equal_pixels(np.asarray(dataset.read())[0], pixels())
    assert dataset.remote_stats["retries"] == 2


# ---------------------------------------------------------------------------------------------------------- credentials


def test_requests_are_signed_or_not(proxied: tuple[Store, Proxy, dict[str, Any]]) -> None:
    store, proxy, options = proxied
    check(store.address("plain.tif"), **options)
    assert all("authorization" in request.headers for request in proxy.requests)
    if store.scheme == "s3":
        # The signature covers the request as sent, its version included.
        signed = proxy.requests[-1].headers["authorization"]
        assert "AKIDEXAMPLE" in signed and "range" in signed.partition("SignedHeaders=")[2]
    proxy.forget()
    kept = {name: options[name] for name in ("endpoint", "region", "azure_storage_account_name") if name in options}
    with pytest.raises(errors.DeniedError) as raised:
        swath.Dataset(store.address("plain.tif"), storage_options={**kept, "anonymous": True})
    assert "nobody-may-print" not in str(raised.value)
    assert proxy.requests and not any("authorization" in request.headers for request in proxy.requests)


def test_a_public_bucket_is_read_without_credentials() -> None:
    with GcsServer() as server:
        server.public = True
        GcsStore("gs", server.url, {}).put("plain.tif", file())
        server.forget()
        check(f"gs://{BUCKET}/plain.tif", endpoint=server.url, anonymous=True)
        assert not any("authorization" in request.headers for request in server.requests)


def test_wrong_credentials_are_denied(azure: Store, gcs: Store) -> None:
    azure.put("plain.tif", file())
    gcs.put("plain.tif", file())
    for store, name, value in (
        (azure, "azure_storage_account_key", "d3Jvbmcga2V5IG9mIG5vYm9keQ=="),
        (gcs, "google_bearer_token", "wrong-token-of-nobody"),
    ):
        with pytest.raises(errors.DeniedError) as raised:
            swath.Dataset(store.address("plain.tif"), storage_options={**store.options, name: value})
        assert value not in str(raised.value) and TOKEN not in str(raised.value)


@pytest.fixture
def clean(monkeypatch: pytest.MonkeyPatch, folder: Path) -> pytest.MonkeyPatch:
    """An environment without any store settings, with a home of its own."""
    import os

    for name in list(os.environ):
        if name.startswith(("AWS_", "AZURE_", "GOOGLE_", "STORAGE_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return monkeypatch


def test_the_environment_leads_to_s3(s3: Store, clean: pytest.MonkeyPatch) -> None:
    s3.put("plain.tif", file())
    with Proxy(s3.url) as proxy:
        clean.setenv("AWS_ENDPOINT_URL", proxy.url)
        clean.setenv("AWS_ACCESS_KEY_ID", "FROMENVIRONMENT")
        clean.setenv("AWS_SECRET_ACCESS_KEY", "secret")
        clean.setenv("AWS_REGION", "eu-west-1")
        check(s3.address("plain.tif"))
        assert "FROMENVIRONMENT" in proxy.requests[0].headers["authorization"]
        assert "eu-west-1" in proxy.requests[0].headers["authorization"]


def test_a_profile_leads_to_s3(s3: Store, clean: pytest.MonkeyPatch, folder: Path) -> None:
    s3.put("plain.tif", file())
    keys, settings = folder / "keys", folder / "settings"
    keys.write_text(
        "[default]\naws_access_key_id = FROMDEFAULT\naws_secret_access_key = a\n"
        "[other]\naws_access_key_id=FROMOTHER\naws_secret_access_key=b\naws_session_token=c\n"
    )
    with Proxy(s3.url) as proxy:
        settings.write_text(
            f"[default]\nregion = us-west-2\nendpoint_url = {proxy.url}\n"
            f"[profile other]\nregion = ap-south-1\nendpoint_url = {proxy.url}\n"
        )
        clean.setenv("AWS_SHARED_CREDENTIALS_FILE", str(keys))
        clean.setenv("AWS_CONFIG_FILE", str(settings))
        check(s3.address("plain.tif"))
        assert "FROMDEFAULT" in proxy.requests[0].headers["authorization"]
        assert "us-west-2" in proxy.requests[0].headers["authorization"]
        proxy.forget()
        clean.setenv("AWS_PROFILE", "other")
        check(s3.address("plain.tif"))
        assert "FROMOTHER" in proxy.requests[0].headers["authorization"]
        assert "ap-south-1" in proxy.requests[0].headers["authorization"]
        assert proxy.requests[0].headers["x-amz-security-token"] == "c"


def test_given_options_override_the_environment(s3: Store, clean: pytest.MonkeyPatch) -> None:
    s3.put("plain.tif", file())
    clean.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    clean.setenv("AWS_ACCESS_KEY_ID", "FROMENVIRONMENT")
    clean.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    check(s3.address("plain.tif"), **s3.options)


def test_options_of_s3fs_are_understood(s3: Store) -> None:
    s3.put("plain.tif", file())
    options = {"key": "AKIDEXAMPLE", "secret": "x", "client_kwargs": {"endpoint_url": s3.url}}
    check(s3.address("plain.tif"), **options)


# --------------------------------------------------------------------------------------------------------- command line


def test_the_command_reads_objects(store: Store, swath: Swath) -> None:
    store.put("with space.tif", file())
    settings = [f"--remote-option={name}={value}" for name, value in store.options.items() if "_" in name]
    if "region" in store.options:
        settings.append(f"--region={store.options['region']}")
    address = store.address("with space.tif")
    equal_pixels(swath_dump(swath, address, f"--endpoint={store.options['endpoint']}", *settings), pixels())


def swath_dump(tool: Swath, address: str, *options: str) -> np.ndarray:
    out = tool.folder / "store.npy"
    run = tool.run("dump", address, "--out", out, *options)
    assert run.ok, run.stderr
    return np.load(out)[0]
