"""The settings for TLS: invalid combinations are rejected at once, in a line that names the setting."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest
import trustme

from shared.process.settings import EXIT_CONFIGURATION, read_settings
from shared.settings import QueueSettings

URL = "rediss://redis:6379/0"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The three settings, with files that belong together."""
    ca = trustme.CA()
    issued = ca.issue_cert("client")
    ca.cert_pem.write_to_path(tmp_path / "ca.pem")
    issued.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    issued.private_key_pem.write_to_path(tmp_path / "key.pem")
    return {f"redis_tls_{name}": str(tmp_path / f"{name}.pem") for name in ("ca", "cert", "key")}


def complaint(values: dict[str, str], capsys: pytest.CaptureFixture[str]) -> str:
    """Returns the one line that rejects the settings."""
    with pytest.raises(SystemExit) as left:
        read_settings(QueueSettings, values)
    assert left.value.code == EXIT_CONFIGURATION
    (line,) = capsys.readouterr().err.splitlines()
    return line


def test_the_certificate_and_the_name_are_always_verified(files: dict[str, str]) -> None:
    """A configured authority is the only one trusted; without it, those of the system are."""
    own = read_settings(QueueSettings, {"redis_url": URL, **files}).redis_tls.context()
    systems = read_settings(QueueSettings, {"redis_url": URL}).redis_tls.context()
    for context in (own, systems):
        assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert len(own.get_ca_certs()) == 1
    assert own.get_ca_certs() != systems.get_ca_certs()


def test_a_url_that_would_not_verify_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """redis-py reads TLS options from the URL; the error line does not show the URL."""
    line = complaint({"redis_url": "rediss://a:secret@redis:6379/0?ssl_cert_reqs=none"}, capsys)
    assert line.startswith("redbatch: --redis-url (REDBATCH_REDIS_URL): ")
    assert "--redis-tls-ca" in line
    assert "secret" not in line


@pytest.mark.parametrize("name", ["redis_tls_ca", "redis_tls_cert", "redis_tls_key"])
def test_an_unreadable_file_is_reported(
    name: str, files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error names the setting, the path and the reason."""
    missing = str(tmp_path / "missing.pem")
    line = complaint({"redis_url": URL, **files, name: missing}, capsys)
    assert line.startswith(f"redbatch: --{name.replace('_', '-')} (REDBATCH_{name.upper()}): ")
    assert "cannot be read (No such file or directory)" in line
    assert missing in line


@pytest.mark.parametrize("name", ["redis_tls_cert", "redis_tls_key"])
def test_a_certificate_and_its_key_go_together(
    name: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A certificate without its key, or a key alone, is rejected."""
    assert "--redis-tls-cert and --redis-tls-key go together" in complaint(
        {"redis_url": URL, name: files[name]}, capsys
    )


def test_files_that_are_something_else_are_refused(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """An invalid authority, and a key of another certificate, are rejected."""
    (tmp_path / "text").write_text("no certificate", encoding="utf-8")
    assert "--redis-tls-ca holds no certificate" in complaint(
        {"redis_url": URL, "redis_tls_ca": f"{tmp_path}/text"}, capsys
    )
    other = trustme.CA().issue_cert("client")
    other.private_key_pem.write_to_path(tmp_path / "other.pem")
    wrong = {"redis_url": URL, **files, "redis_tls_key": f"{tmp_path}/other.pem"}
    assert "are not a certificate and its private key" in complaint(wrong, capsys)


@pytest.mark.parametrize("url", ["redis://redis:6379/0", "unix:///run/redis.sock"])
def test_without_tls_there_is_nothing_to_set(
    url: str, files: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    """TLS files without a rediss:// URL are rejected: the user would believe that the connection is encrypted."""
    line = complaint({"redis_url": url, "redis_tls_ca": files["redis_tls_ca"]}, capsys)
    assert line.startswith("redbatch: --redis-tls-ca (REDBATCH_REDIS_TLS_CA): ")
    assert "rediss://" in line
