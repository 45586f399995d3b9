"""The example for Kubernetes: the worker runs against real DNS, and the manifests agree with it."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.discovery.dnsmasq import DOMAIN, Dnsmasq

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples" / "kubernetes"
WORKER = EXAMPLE / "worker.py"
NAME = f"workers.{DOMAIN}"
BLOCK = "127.83.0"  # addresses of the loopback interface that nothing else uses


def load_worker() -> Any:  # noqa: ANN401  (a module)
    spec = importlib.util.spec_from_file_location("kubernetes_worker", WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Worker:
    """One worker, in a process of its own."""

    def __init__(self, stack: ExitStack, dnsmasq: Dnsmasq, number: int) -> None:
        """Start it."""
        self.address = f"{BLOCK}.{number}"
        self.host_port = f"{self.address}:{load_worker().PORT}"
        where = ["--dns", NAME, "--nameserver", dnsmasq.nameserver]
        how = ["--listen", self.address, "--source", self.address, "--provider", "tcp"]
        self._process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, str(WORKER), *where, *how, "--every-s", "0.05"],
                stdout=subprocess.PIPE,
                text=True,
            )
        )
        stack.callback(self._process.kill)
        self._said: list[str] = []
        self.says("listening on")

    def says(self, *parts: str) -> None:
        """Read what it says, until all of this was said, in any order."""
        assert self._process.stdout is not None
        missing = [part for part in parts if not any(part in line for line in self._said)]
        while missing:
            line = self._process.stdout.readline()
            assert line, f"it ended after {self._said} without {missing}"
            self._said.append(line)
            missing = [part for part in missing if part not in line]

    def ask_to_end(self) -> None:
        """Ask it to end, as Kubernetes does."""
        self._process.terminate()

    def ends(self) -> None:
        """Read the rest of what it says."""
        assert self._process.stdout is not None
        self._said += self._process.stdout.readlines()
        assert self._process.wait() == 0
        assert self._said[-1] == "ended\n"
        assert not any("wrong" in line for line in self._said)

    def kill(self) -> None:
        """End it without a chance to say anything."""
        self._process.kill()
        self._process.wait()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.mark.timeout(60)
def test_workers_follow_the_membership(stack: ExitStack, tmp_path: Path) -> None:
    dnsmasq = stack.enter_context(Dnsmasq(tmp_path))
    one, two = (Worker(stack, dnsmasq, number) for number in (1, 2))
    dnsmasq.serve_now({NAME: [one.address, two.address]})
    one.says(f"{two.host_port} 64 pages verified")
    two.says(f"{one.host_port} 64 pages verified")

    three = Worker(stack, dnsmasq, 3)
    dnsmasq.serve_now({NAME: [one.address, two.address, three.address]})
    three.says(f"{one.host_port} 64 pages verified", f"{two.host_port} 64 pages verified")
    one.says(f"{three.host_port} 64 pages verified")

    two.kill()
    dnsmasq.serve_now({NAME: [one.address, three.address]})
    one.says(f"{two.host_port} gone")
    three.says(f"{two.host_port} gone")
    four = Worker(stack, dnsmasq, 4)
    dnsmasq.serve_now({NAME: [one.address, three.address, four.address]})
    four.says(f"{one.host_port} 64 pages verified", f"{three.host_port} 64 pages verified")
    for worker in (one, three, four):
        worker.ask_to_end()
    for worker in (one, three, four):
        worker.ends()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "give one of --dns and --endpointslices"),
        (["--dns", "a", "--endpointslices", "b"], "give one of"),
        (["--dns", "a..b"], "cannot be asked for"),
    ],
)
def test_what_the_worker_cannot_do_is_said(arguments: list[str], text: str) -> None:
    done = subprocess.run(
        [sys.executable, str(WORKER), *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr


def test_the_worker_serves_what_the_service_is_named_after() -> None:
    done = subprocess.run(
        [sys.executable, str(WORKER), "--help"], capture_output=True, text=True, check=True
    )
    assert str(load_worker().PORT) in done.stdout


# The manifests.


def documents() -> dict[tuple[str, str], dict[str, Any]]:
    """All of them, by file name and kind."""
    return {
        (path.name, document["kind"]): document
        for path in sorted(EXAMPLE.glob("*.yaml"))
        for document in yaml.safe_load_all(path.read_text("utf-8"))
    }


DOCUMENTS = documents()
WORKLOADS = [document for (name, _), document in DOCUMENTS.items() if name.startswith("workers-")]
SERVICE = DOCUMENTS["service.yaml", "Service"]


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (found,) = workload["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def arguments_of(workload: dict[str, Any]) -> dict[str, str]:
    """Options of the worker -> values."""
    return dict(text.removeprefix("--").split("=", 1) for text in container(workload)["args"])


def test_all_manifests_are_there() -> None:
    assert {kind for _, kind in DOCUMENTS} == {
        *("Service", "ServiceAccount", "Role", "RoleBinding", "Secret"),
        *("Deployment", "StatefulSet"),
    }
    assert len(WORKLOADS) == 2
    for document in DOCUMENTS.values():
        assert document["metadata"]["labels"] == {"app": "fabricio-worker"}


def test_the_service_is_headless_and_its_port_is_the_workers() -> None:
    spec = SERVICE["spec"]
    assert spec["clusterIP"] == "None"
    assert spec["publishNotReadyAddresses"] is True
    worker = load_worker()
    assert spec["ports"] == [
        {
            "name": worker.PORT_NAME,
            "port": worker.PORT,
            "targetPort": worker.PORT_NAME,
            "protocol": "TCP",
        }
    ]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: str(workload["kind"]))
def test_a_workload_agrees_with_the_others(workload: dict[str, Any]) -> None:
    spec, worker = workload["spec"], load_worker()
    pod = spec["template"]["spec"]
    labels = spec["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"] == SERVICE["spec"]["selector"] == labels
    assert spec.get("serviceName", SERVICE["metadata"]["name"]) == SERVICE["metadata"]["name"]
    assert pod["serviceAccountName"] == DOCUMENTS["rbac.yaml", "ServiceAccount"]["metadata"]["name"]
    (port,) = container(workload)["ports"]
    assert (port["name"], port["containerPort"]) == (worker.PORT_NAME, worker.PORT)
    assert container(workload)["readinessProbe"]["tcpSocket"]["port"] == worker.PORT_NAME
    assert pod["terminationGracePeriodSeconds"] > 10  # peer_timeout_s


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: str(workload["kind"]))
def test_the_secret_is_where_the_worker_looks(workload: dict[str, Any]) -> None:
    secret = DOCUMENTS["secret.yaml", "Secret"]
    (key,) = secret["stringData"]
    assert len(secret["stringData"][key]) >= 32
    pod = workload["spec"]["template"]["spec"]
    (volume,) = (each for each in pod["volumes"] if "secret" in each)
    assert volume["secret"]["secretName"] == secret["metadata"]["name"]
    (mount,) = (
        each for each in container(workload)["volumeMounts"] if each["name"] == volume["name"]
    )
    env = {each["name"]: each.get("value") for each in container(workload)["env"]}
    assert env["FABRICIO_SECRET_FILE"] == f"{mount['mountPath']}/{key}"
    assert "FABRICIO_SECRET_FILE" in WORKER.read_text("utf-8")


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: str(workload["kind"]))
def test_every_mount_has_its_volume_and_every_option_exists(workload: dict[str, Any]) -> None:
    pod = workload["spec"]["template"]["spec"]
    mounts = {each["name"] for each in container(workload)["volumeMounts"]}
    assert mounts == {each["name"] for each in pod["volumes"]}
    arguments = arguments_of(workload)
    options = set(load_worker().main.__annotations__)
    assert {name.replace("-", "_") for name in arguments} <= options
    names = {arguments.get("dns"), arguments.get("endpointslices")} - {None}
    assert names == {SERVICE["metadata"]["name"]}
    env = {each["name"] for each in container(workload)["env"]}
    assert set(re.findall(r"\$\((\w+)\)", " ".join(container(workload)["args"]))) <= env


def test_who_watches_endpointslices_may_and_who_asks_dns_has_no_token() -> None:
    role, binding = DOCUMENTS["rbac.yaml", "Role"], DOCUMENTS["rbac.yaml", "RoleBinding"]
    assert role["rules"] == [
        {
            "apiGroups": ["discovery.k8s.io"],
            "resources": ["endpointslices"],
            "verbs": ["list", "watch"],
        }
    ]
    assert binding["roleRef"]["name"] == role["metadata"]["name"]
    assert binding["subjects"] == [
        {
            "kind": "ServiceAccount",
            "name": DOCUMENTS["rbac.yaml", "ServiceAccount"]["metadata"]["name"],
        }
    ]
    for workload in WORKLOADS:
        pod = workload["spec"]["template"]["spec"]
        watches = "endpointslices" in arguments_of(workload)
        assert pod.get("automountServiceAccountToken", True) is watches


def test_efa_has_its_device_huge_pages_and_locked_memory() -> None:
    workload = DOCUMENTS["workers-efa.yaml", "StatefulSet"]
    resources = container(workload)["resources"]
    for name in ("vpc.amazonaws.com/efa", "hugepages-2Mi"):
        assert resources["limits"][name] == resources["requests"][name]
    assert container(workload)["securityContext"]["capabilities"]["add"] == ["IPC_LOCK"]
    assert arguments_of(workload)["provider"] == "efa"


def test_the_image_has_what_the_worker_needs() -> None:
    text = (EXAMPLE / "Dockerfile").read_text("utf-8")
    match = re.search(r"'\.\[([\w,]+)\]'", text)
    assert match is not None
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert set(match[1].split(",")) <= set(extras["optional-dependencies"])
    needs = re.search(r"fabricio-rdma\[([\w,]+)\]", WORKER.read_text("utf-8"))
    assert needs is not None
    assert needs[1] == match[1]
    worker = load_worker()
    assert f"EXPOSE {worker.PORT}\n" in text
    images = {container(workload)["image"].split(":")[0] for workload in WORKLOADS}
    (image,) = images
    assert f"docker build -t {image} -f examples/kubernetes/Dockerfile ." in text
    copied = re.findall(r"^COPY (examples/\S+)", text, re.MULTILINE)
    assert copied == ["examples/kubernetes/worker.py"]
