"""What is in deploy/ agrees with itself and with the service: users, images, variables, probes and secrets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from app import __version__
from tests.conftest import TestDatabase
from tests.service import free_port, spawn, stop, wait_until_ready

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
# A filled in secret.yaml belongs to whoever deploys and is never committed.
YAML_FILES = sorted(path for path in DEPLOY.rglob("*.y*ml") if path.name != "secret.yaml")
SECRET_VARIABLES = {
    "CURSOR_SECRET",
    "DATABASE_DIRECT_URL",
    "DATABASE_MIGRATION_URL",
    "DATABASE_URL",
    "METRICS_TOKEN",
    "PLATFORM_KEY",
}

Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    """The documents in one YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document is not None]


def manifests(kind: str | None = None) -> list[Document]:
    """Every Kubernetes object in deploy/kubernetes, or those of one kind."""
    found = [document for path in YAML_FILES if path.parent == KUBERNETES for document in documents(path)]
    return [document for document in found if kind is None or document["kind"] == kind]


def pods() -> dict[str, Document]:
    """The pod spec of every workload, by the workload's name."""
    return {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]
        for document in manifests()
        if "template" in document.get("spec", {})
    }


def containers() -> list[tuple[str, Document, Document]]:
    """Every container with its workload's name and its pod spec."""
    return [
        (name, pod, container)
        for name, pod in pods().items()
        for container in [*pod.get("initContainers", []), *pod["containers"]]
    ]


def services() -> dict[str, Document]:
    """The services of the compose file."""
    (compose,) = documents(DEPLOY / "compose.yaml")
    return compose["services"]


def own_services() -> dict[str, Document]:
    """The compose services that run our image."""
    return {name: service for name, service in services().items() if service["image"].startswith("palimpsest:")}


def images() -> list[str]:
    """Every image named anywhere in deploy/."""
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    return [
        *(container["image"] for _, _, container in containers()),
        *(service["image"] for service in services().values()),
        *(f"{image['newName']}:{image['newTag']}" for image in kustomization["images"]),
        *re.findall(r"^FROM (\S+)", dockerfile, flags=re.MULTILINE),
    ]


def test_the_workloads_are_the_expected_ones() -> None:
    assert {path.name for path in YAML_FILES} >= {"compose.yaml", "kustomization.yaml", "secret.example.yaml"}
    assert set(pods()) == {"palimpsest-api", "palimpsest-worker", "palimpsest-migrate"}
    assert set(own_services()) == {"api", "worker", "migrate"}
    commands = {name: container["args"] for name, _, container in containers()}
    assert commands == {
        "palimpsest-api": own_services()["api"]["command"],
        "palimpsest-worker": own_services()["worker"]["command"],
        "palimpsest-migrate": own_services()["migrate"]["command"],
    }


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_yaml_file_parses_into_objects(path: Path) -> None:
    found = documents(path)
    assert found
    assert all(isinstance(document, dict) for document in found)
    assert not [document for document in found if "namespace" in document.get("metadata", {})]


def test_every_pod_is_confined() -> None:
    for name, pod, container in containers():
        context = {**pod.get("securityContext", {}), **container.get("securityContext", {})}
        assert context["runAsNonRoot"] is True, name
        assert context["runAsUser"] == 10001, name
        assert context["readOnlyRootFilesystem"] is True, name
        assert context["allowPrivilegeEscalation"] is False, name
        assert context["capabilities"] == {"drop": ["ALL"]}, name
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert pod["automountServiceAccountToken"] is False, name
        assert {"requests", "limits"} <= set(container["resources"]), name
        writable = {volume["name"] for volume in pod["volumes"] if "emptyDir" in volume}
        assert {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}["/tmp"] in writable, name


def test_every_compose_service_is_confined() -> None:
    for name, service in services().items():
        assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", service["user"]), name
        assert service["read_only"] is True, name
        assert "/tmp" in service["tmpfs"], name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
    assert {service["user"] for service in own_services().values()} == {"10001:10001"}


def test_the_image_runs_as_the_same_user() -> None:
    dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^USER (.*)$", dockerfile, flags=re.MULTILINE) == ["10001:10001"]
    assert 'ENTRYPOINT ["palimpsest"]' in dockerfile
    assert "/health" in dockerfile
    for line in re.findall(r"^COPY (?!--from)(.*)$", dockerfile, flags=re.MULTILINE):
        for source in line.split()[:-1]:
            assert (ROOT / source).exists(), source


def test_no_image_is_latest_and_ours_carries_the_version_of_the_project() -> None:
    for image in images():
        repository, _, tag = image.rpartition(":")
        assert repository, f"{image} has no tag"
        assert tag not in {"", "latest"}, image
        if repository.rpartition("/")[2] == "palimpsest":
            assert tag == __version__, image


def test_every_variable_is_one_the_service_knows() -> None:
    from app.config import ENVIRONMENT_VARIABLES

    named = {entry["name"] for _, _, container in containers() for entry in container.get("env", [])}
    named |= {name for document in manifests("ConfigMap") for name in document["data"]}
    named |= {name for document in manifests("Secret") for name in document["stringData"]}
    named |= {name for service in own_services().values() for name in service["environment"]}
    assert named
    assert named - set(ENVIRONMENT_VARIABLES) == set()
    assert set(ENVIRONMENT_VARIABLES) >= SECRET_VARIABLES


def test_secrets_only_come_from_secret_keys() -> None:
    offered = {(secret["metadata"]["name"], key) for secret in manifests("Secret") for key in secret["stringData"]}
    for name, _, container in containers():
        for source in container.get("envFrom", []):
            assert set(source) == {"configMapRef"}, name
        for entry in container.get("env", []):
            if entry["name"] in SECRET_VARIABLES:
                assert set(entry) == {"name", "valueFrom"}, (name, entry["name"])
                assert set(entry["valueFrom"]) == {"secretKeyRef"}, (name, entry["name"])
            reference = entry.get("valueFrom", {}).get("secretKeyRef")
            if reference is not None and not reference.get("optional", False):
                assert (reference["name"], reference["key"]) in offered, (name, entry["name"])
    for document in manifests("ConfigMap"):
        assert not SECRET_VARIABLES & set(document["data"])


def test_no_secret_is_written_down() -> None:
    for document in manifests("Secret"):
        assert all("CHANGE-ME" in value for value in document["stringData"].values())
    for name, service in services().items():
        for variable, value in service["environment"].items():
            if variable in SECRET_VARIABLES or "PASSWORD" in variable:
                assert "${" in value, (name, variable)
                assert not re.search(r"://[^:/@]+:(?!\$\{)", value), (name, variable)


def test_only_migrations_see_the_migration_url() -> None:
    named = {name for name, _, container in containers() for entry in container["env"] if "MIGRATION" in entry["name"]}
    assert named == {"palimpsest-migrate"}
    assert {name for name, service in own_services().items() if "DATABASE_MIGRATION_URL" in service["environment"]} == {
        "migrate"
    }


def test_the_api_is_probed_and_drains() -> None:
    pod = pods()["palimpsest-api"]
    (container,) = pod["containers"]
    (configuration,) = manifests("ConfigMap")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe, path in (("readinessProbe", "/ready"), ("livenessProbe", "/health")):
        assert container[probe]["httpGet"]["path"] == path
        assert str(ports[container[probe]["httpGet"]["port"]]) == configuration["data"]["PORT"]
    assert configuration["data"]["HOST"] == "0.0.0.0"
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pause + float(configuration["data"]["DRAIN_SECONDS"]) < pod["terminationGracePeriodSeconds"] == 40
    (service,) = manifests("Service")
    assert service["spec"]["ports"][0]["targetPort"] in ports


def memory(text: str) -> int:
    """A quantity of Kubernetes or compose in bytes."""
    number, unit = re.fullmatch(r"(\d+)([KMGkmg])i?", text).groups()  # type: ignore[union-attr]
    return int(number) * 1024 ** (1 + "kmg".index(unit.lower()))


def test_a_worker_is_probed_on_its_own_port() -> None:
    (container,) = pods()["palimpsest-worker"]["containers"]
    (configuration,) = manifests("ConfigMap")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe, path in (("readinessProbe", "/ready"), ("livenessProbe", "/health")):
        assert container[probe]["httpGet"]["path"] == path
        assert str(ports[container[probe]["httpGet"]["port"]]) == configuration["data"]["MONITORING_PORT"]
    (policy,) = [item for item in manifests("NetworkPolicy") if item["metadata"]["name"] == "palimpsest-worker"]
    assert policy["spec"]["ingress"] == [{"ports": [{"protocol": "TCP", "port": ports["monitoring"]}]}]
    assert policy["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "worker"
    worker = own_services()["worker"]
    assert worker["environment"]["HOST"] == "0.0.0.0"
    assert "ports" not in worker


def test_the_memory_of_a_worker_fits_its_document_readers() -> None:
    from app.documents.parser import MEMORY

    (container,) = pods()["palimpsest-worker"]["containers"]
    (configuration,) = manifests("ConfigMap")
    worker = own_services()["worker"]
    for limit, readers in (
        (container["resources"]["limits"]["memory"], configuration["data"]["DOCUMENT_READERS"]),
        (worker["mem_limit"], worker["environment"]["DOCUMENT_READERS"]),
    ):
        assert memory(limit) >= 400 * 1024**2 + int(readers) * MEMORY


def healthy(command: list[str], **variables: str) -> bool:
    """Whether a health check of the manifests succeeds with the settings of its container."""
    assert command[:2] == ["CMD", "python"]
    ran = subprocess.run([sys.executable, *command[2:]], env=variables, capture_output=True, timeout=60, check=False)
    return ran.returncode == 0


def test_the_health_checks_of_compose_find_a_live_and_a_dead_process(tmp_path: Path, database: TestDatabase) -> None:
    port, log = str(free_port()), tmp_path / "log"
    command = own_services()["worker"]["healthcheck"]["test"]
    assert not healthy(command, MONITORING_PORT=port)
    process = spawn("worker", log=log, DATABASE_URL=database.url("app"), MONITORING_PORT=port)
    try:
        wait_until_ready(f"http://127.0.0.1:{port}", process, log)
        assert healthy(command, MONITORING_PORT=port)
        dockerfile = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
        (check,) = re.findall(r"^HEALTHCHECK .*?CMD (\[.*?\])$", dockerfile, flags=re.MULTILINE | re.DOTALL)
        assert healthy(["CMD", *json.loads(check)], PORT=port)
    finally:
        stop(process)


def test_the_api_survives_the_loss_of_one_pod() -> None:
    (api,) = [document for document in manifests("Deployment") if document["metadata"]["name"] == "palimpsest-api"]
    assert api["spec"]["replicas"] == 2
    labels = api["spec"]["template"]["metadata"]["labels"]
    assert api["spec"]["selector"]["matchLabels"].items() <= labels.items()
    (budget,) = manifests("PodDisruptionBudget")
    assert budget["spec"]["maxUnavailable"] == 1
    selectors = [
        budget["spec"]["selector"]["matchLabels"],
        manifests("Service")[0]["spec"]["selector"],
        *(
            policy["spec"]["podSelector"]["matchLabels"]
            for policy in manifests("NetworkPolicy")
            if policy["metadata"]["name"] != "palimpsest-worker"
        ),
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)


def test_all_kustomization_resources_exist_and_nothing_is_left_out() -> None:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    resources = kustomization["resources"]
    assert all((KUBERNETES / resource).is_file() for resource in resources)
    apart = {"kustomization.yaml", "secret.example.yaml"}
    assert {path.name for path in YAML_FILES if path.parent == KUBERNETES} - apart == set(resources)
