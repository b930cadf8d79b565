"""A realm of MIT Kerberos with its KDC on loopback."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.compat.members import wait_for
from tests.compat.targets import free_ports

REALM = "T.REALM"
KDC = shutil.which("krb5kdc", path="/usr/sbin:/sbin:/usr/bin")
needs_kdc = pytest.mark.skipif(KDC is None, reason="needs krb5kdc (apt install krb5-kdc krb5-admin-server)")


@contextmanager
def realm_in(folder: Path, monkeypatch: pytest.MonkeyPatch, principals: Sequence[str]) -> Iterator[None]:
    """Make a realm with keytabs in `folder`, named by the first part of their principal, and run its KDC."""
    pytest.importorskip("gssapi", exc_type=ImportError)
    (port,) = free_ports(1)
    (folder / "krb5.conf").write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_lookup_kdc = false\n dns_canonicalize_hostname = false\n"
        f" rdns = false\n udp_preference_limit = 1\n[realms]\n {REALM} = {{\n kdc = 127.0.0.1:{port}\n }}\n"
    )
    (folder / "kdc.conf").write_text(
        f"[kdcdefaults]\n kdc_listen = 127.0.0.1:{port}\n kdc_tcp_listen = 127.0.0.1:{port}\n[realms]\n"
        f" {REALM} = {{\n database_name = {folder}/principal\n key_stash_file = {folder}/stash\n }}\n"
    )
    monkeypatch.setenv("KRB5_CONFIG", str(folder / "krb5.conf"))
    monkeypatch.setenv("KRB5_KDC_PROFILE", str(folder / "kdc.conf"))
    monkeypatch.setenv("KRB5RCACHEDIR", str(folder))
    programs = str(Path(str(KDC)).parent)

    def run(program: str, *words: str) -> None:
        subprocess.run([f"{programs}/{program}", *words], check=True, capture_output=True, timeout=60)

    run("kdb5_util", "create", "-s", "-P", "master", "-r", REALM)
    for principal in principals:
        keytab = folder / f"{principal.partition('/')[0]}.keytab"
        run("kadmin.local", "-q", f"addprinc -randkey {principal}@{REALM}")
        run("kadmin.local", "-q", f"ktadd -k {keytab} {principal}@{REALM}")
    with (folder / "kdc.log").open("wb") as log:
        kdc = subprocess.Popen([str(KDC), "-n", "-P", str(folder / "pid")], stdout=log, stderr=log)
    try:
        wait_for("the KDC", lambda: b"starting" in (folder / "kdc.log").read_bytes(), 30)
        yield
    finally:
        kdc.terminate()
        kdc.wait(30)
