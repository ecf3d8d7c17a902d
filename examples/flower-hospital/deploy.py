"""The example as a deployment on this machine: `python deploy.py`.

It makes certificates and node keys, starts a SuperLink and a SuperNode for each hospital (TLS, only
known keys), runs the app, and stops everything that it started, whatever happens meanwhile. With
`--simulate` there are no SuperNodes: the SuperLink simulates them.
"""

from __future__ import annotations

import argparse
import datetime
import ipaddress
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

APP = Path(__file__).parent
sys.path.insert(0, str(APP))

from hospital.data import write_files  # noqa: E402

HOST = "127.0.0.1"
HOSPITALS = ["north", "south", "west"]
CONNECTION = "hospital"  # the SuperLink's name in Flower's configuration
PORTS = range(10_000, 32_000)  # below those that systems give to outgoing connections
DAYS_VALID = 30
SECONDS_TO_START = 180.0  # generous: on a busy machine importing Flower alone takes many seconds
SECONDS_TO_STOP = 15.0
SECONDS_BETWEEN_LOOKS = 0.1
ENVIRONMENT = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",  # else simulated sites wait for everything else on the machine
}


class Deployment:
    """A SuperLink and SuperNodes on the loopback; leaving the `with` block stops them all."""

    def __init__(
        self, folder: Path, hospitals: Iterable[str] = HOSPITALS, *, simulated: bool = False
    ) -> None:
        self.folder, self.hospitals = folder.resolve(), list(hospitals)
        self.simulated = simulated
        self.port = free_port()
        self.ways: dict[str, int] = {}
        """Ports by which hospitals reach the SuperLink, where not by its own."""
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.environment = {**os.environ, **ENVIRONMENT, "FLWR_HOME": str(self.folder / "flwr")}
        scripts = str(Path(sys.executable).parent)  # Flower's programs call each other by name
        self.environment["PATH"] = os.pathsep.join([scripts, os.environ.get("PATH", "")])
        for name in ("keys", "data", "logs", "flwr", "server"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        make_certificates(self.folder / "keys")
        self.data = write_files(self.folder / "data", self.hospitals)
        for hospital in self.hospitals:
            make_node_key(self.folder / "keys" / hospital)
        self._write_connection()

    def __enter__(self) -> Deployment:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop(*self.processes)

    def start(self) -> None:
        """The SuperLink, every hospital's key, every hospital's SuperNode."""
        self.start_superlink()
        if self.simulated:
            return
        self.register(*self.hospitals)
        for hospital in self.hospitals:
            self.start_supernode(hospital)
        for hospital in self.hospitals:
            self.wait_for_supernode(hospital)

    def start_superlink(self) -> None:
        """The server that all others connect to; returns when it answers."""
        keys = self.folder / "keys"
        command = ["flower-superlink", "--host", HOST, "--port", str(self.port)]
        command += ["--disable-runtime-dependency-installation"]
        if self.simulated:
            command += ["--insecure", "--simulation"]
        else:
            command += ["--ssl-certfile", str(keys / "server.pem")]
            command += ["--ssl-keyfile", str(keys / "server.key")]
            command += ["--ssl-ca-certfile", str(keys / "ca.pem")]
            command += ["--enable-supernode-auth", "--database", str(self.folder / "state.db")]
        self.launch("superlink", command)
        self.wait_for_superlink(keys / "ca.pem")

    def wait_for_superlink(self, authority: Path) -> None:
        """Until it answers, with a certificate of this authority."""
        trusted = ssl.create_default_context(cafile=str(authority))
        url = f"{'http' if self.simulated else 'https'}://{HOST}:{self.port}/health"

        def answers() -> bool:
            try:
                with urllib.request.urlopen(url, timeout=5, context=trusted):
                    return True
            except (urllib.error.URLError, OSError):
                return False

        self.wait(answers, "the SuperLink to answer", "superlink")

    def register(self, *hospitals: str) -> None:
        """Make hospitals' public keys known to the SuperLink."""
        for hospital in hospitals:
            key = str(self.folder / "keys" / f"{hospital}.pub")
            command = ["flwr", "supernode", "register", key, CONNECTION, "--name", hospital]
            self.launch(f"register-{hospital}", command)
        for hospital in hospitals:
            name = f"register-{hospital}"
            if self.processes[name].wait(SECONDS_TO_START) != 0:
                raise SystemExit(f"{hospital} is not registered:\n{self.log_of(name)}")
            del self.processes[name]

    def start_supernode(
        self, hospital: str, *, key: str | None = None, plaintext: bool = False
    ) -> None:
        """A hospital's own program: it alone reads the hospital's file."""
        keys = self.folder / "keys"
        port = self.ways.get(hospital, self.port)
        command = ["flower-supernode", "--superlink", f"{HOST}:{port}"]
        command += ["--host", HOST, "--port", str(free_port())]
        if plaintext:
            command += ["--insecure", "--max-retries", "1"]
        else:
            command += ["--root-certificates", str(keys / "ca.pem")]
            command += ["--auth-supernode-private-key", str(keys / (key or hospital))]
        data = self.data.get(hospital, self.folder / "data" / f"{hospital}.npz")
        command += ["--node-config", f'name="{hospital}" data="{data}"']
        self.launch(hospital, command)

    def wait_for_supernode(self, hospital: str) -> None:
        """Until the SuperLink has admitted it."""
        self.wait(
            lambda: "SuperNode ID" in self.log_of(hospital), f"{hospital} to be admitted", hospital
        )

    def restart_supernode(self, hospital: str) -> None:
        """Start it until it is admitted, as a supervisor would; just killed, it counts as there."""
        end = time.monotonic() + SECONDS_TO_START
        while True:
            self.start_supernode(hospital)
            process = self.processes[hospital]
            while process.poll() is None:
                if "SuperNode ID" in self.log_of(hospital):
                    return
                time.sleep(SECONDS_BETWEEN_LOOKS)
            if time.monotonic() > end:
                raise SystemExit(f"{hospital} is not admitted:\n{self.log_of(hospital)}")
            self.kill(hospital)  # what it started may still be there

    def run(self, app: Path = APP, **config: Any) -> subprocess.Popen[bytes]:
        """Begin the app with these settings of its pyproject.toml; its log is `run.log`."""
        settings = {"folder": str(self.folder / "server"), **config}
        told = " ".join(f"{key.replace('_', '-')}={_toml(v)}" for key, v in settings.items())
        command = ["flwr", "run", str(app), CONNECTION, "--stream", "--run-config", told]
        if self.simulated:
            command += ["--federation-config", f"num-supernodes={len(self.hospitals)}"]
            command += ["--federation-config", "client-resources-num-cpus=1"]
        return self.launch("run", command)

    def log_of(self, name: str) -> str:
        """What a program has printed since it was last started."""
        path = self.folder / "logs" / f"{name}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def wait(
        self, true: Callable[[], bool], what: str, alive: str, seconds: float = SECONDS_TO_START
    ) -> None:
        """Until something is true, as long as a program lives."""
        end = time.monotonic() + seconds
        while not true():
            if self.processes[alive].poll() is not None and not true():
                raise SystemExit(f"{alive} ended while waiting for {what}:\n{self.log_of(alive)}")
            if time.monotonic() > end:
                raise SystemExit(f"{what}: not within {seconds:.0f} s:\n{self.log_of(alive)}")
            time.sleep(SECONDS_BETWEEN_LOOKS)

    def kill(self, name: str) -> None:
        """End a program as a power cut would, and what it started with it."""
        process = self.processes.pop(name)
        for pid in started_by(process.pid):
            _signal(pid, signal.SIGKILL)
        process.wait()

    def stop(self, *names: str) -> None:
        """End programs, and whatever they started: politely, and after a while not so."""
        processes = {name: self.processes.pop(name) for name in names}
        started = {pid for process in processes.values() for pid in started_by(process.pid)}
        for process in processes.values():
            if process.poll() is None:
                process.terminate()
        end = time.monotonic() + SECONDS_TO_STOP
        for process in processes.values():
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        while any(map(_alive, started)) and time.monotonic() < end:
            time.sleep(SECONDS_BETWEEN_LOOKS)
        for pid in started - {process.pid for process in processes.values()}:
            _signal(pid, signal.SIGKILL)

    def launch(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        """Start a program; what it prints is in its log."""
        with (self.folder / "logs" / f"{name}.log").open("wb") as log:
            self.processes[name] = subprocess.Popen(
                command,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C is for this script, which then stops them in turn
            )
        return self.processes[name]

    def _write_connection(self) -> None:
        certificate = self.folder / "keys" / "ca.pem"
        trust = "insecure = true" if self.simulated else f'root-certificates = "{certificate}"'
        (self.folder / "flwr" / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n[superlink.{CONNECTION}]\n'
            f'address = "{HOST}:{self.port}"\n{trust}\n'
        )


def make_certificates(folder: Path) -> None:
    """An authority of our own, and the server's certificate with its address in it."""
    authority = ec.generate_private_key(ec.SECP384R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hospital authority")])
    root = _certificate(name, name, authority.public_key(), authority, is_authority=True)
    server = ec.generate_private_key(ec.SECP384R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "hospital server")])
    signed = _certificate(subject, name, server.public_key(), authority, is_authority=False)
    pem = serialization.Encoding.PEM
    (folder / "ca.pem").write_bytes(root.public_bytes(pem))
    (folder / "server.pem").write_bytes(signed.public_bytes(pem))
    private = server.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    _write_private(folder / "server.key", private)


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    address = x509.SubjectAlternativeName(
        [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")]
    )
    usage = x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS_VALID))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if not is_authority:
        builder = builder.add_extension(address, critical=False)
    return builder.sign(signer, hashes.SHA384())


def make_node_key(path: Path) -> None:
    """A site's key pair: the private one stays at the site, `.pub` goes to the server."""
    key = ec.generate_private_key(ec.SECP384R1())
    ssh = serialization.Encoding.PEM
    private = key.private_bytes(
        ssh, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    _write_private(path, private)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_name(f"{path.name}.pub").write_bytes(public)


def _write_private(path: Path, content: bytes) -> None:
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


def free_port() -> int:
    """One that nobody listens on, and that no outgoing connection takes meanwhile."""
    while True:
        port = random.choice(PORTS)
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind((HOST, port))
            except OSError:  # taken
                continue
            return port


def started_by(pid: int) -> list[int]:
    """A process that leads a session, all others in it, and whatever these started elsewhere."""
    listed = subprocess.run(
        ["ps", "-e", "-o", "pid=,ppid=,sess="], stdout=subprocess.PIPE, text=True, check=True
    )
    found, children = [pid], dict[int, list[int]]()
    for line in listed.stdout.splitlines():
        process, parent, session = map(int, line.split())
        children.setdefault(parent, []).append(process)
        if session == pid and process != pid:
            found.append(process)
    for process in found:
        found += [child for child in children.get(process, []) if child not in found]
    return found


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _signal(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def _interrupted(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> int:
    """The whole example; the result is FOLDER/server/global.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, help="for keys, logs and the result (else: removed)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--simulate", action="store_true", help="the hospitals, on Ray")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupted)
    with tempfile.TemporaryDirectory(prefix="hospital-") as temporary:
        try:
            with Deployment(
                arguments.folder or Path(temporary), simulated=arguments.simulate
            ) as deployment:
                deployment.start()
                result = deployment.folder / "server" / "global.safetensors"
                before = written(result)
                deployment.run(rounds=arguments.rounds).wait()
                print(deployment.log_of("run"))
                if written(result) != before:  # `flwr run` succeeds when the run has failed, too
                    return 0
                print("there is no result; what went wrong is said above", file=sys.stderr)
                return 1
        except KeyboardInterrupt:
            print("interrupted; everything that was started is stopped", file=sys.stderr)
            return 130


def written(path: Path) -> int | None:
    """When a file was written last; None where there is none."""
    return path.stat().st_mtime_ns if path.exists() else None


if __name__ == "__main__":
    sys.exit(main())
