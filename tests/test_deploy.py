"""What is in deploy/ agrees with itself and with the service: users, images, variables, probes and secrets."""

from __future__ import annotations

import ipaddress
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
import yaml
from psycopg.conninfo import make_conninfo

from app import __version__
from app.config import ENVIRONMENT_VARIABLES, read_settings
from tests.conftest import PLATFORM_KEY, TestDatabase, as_url
from tests.service import RunningService, free_port, palimpsest, spawn, stop, wait_until_ready

ROOT = Path(__file__).resolve().parent.parent
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
# A filled in secret.yaml belongs to whoever deploys and is never committed.
YAML_FILES = sorted(path for path in DEPLOY.rglob("*.y*ml") if path.name != "secret.yaml")
COMPONENTS = sorted(path.parent for path in KUBERNETES.glob("components/*/kustomization.yaml"))
# By their names, so that a new secret setting cannot be forgotten.
SECRET_VARIABLES = {
    name for name in ENVIRONMENT_VARIABLES if re.search(r"(_KEY|_TOKEN|_SECRET)$|^DATABASE_(.*_)?URL$", name)
}

TOKEN = "a-token-of-the-tests-0123456789"

FIRST_KEYS = "palimpsest-first-keys"

Document = dict[str, Any]


def documents(path: Path) -> list[Document]:
    """The documents in one YAML file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document is not None]


def manifests(kind: str | None = None) -> list[Document]:
    """Every Kubernetes object in deploy/kubernetes and its components, or those of one kind."""
    found = [document for path in YAML_FILES if KUBERNETES in path.parents for document in documents(path)]
    return [document for document in found if kind is None or document["kind"] == kind]


def named(kind: str, name: str) -> Document:
    """The Kubernetes object of a kind and a name."""
    (found,) = [document for document in manifests(kind) if document["metadata"]["name"] == name]
    return found


def pods() -> dict[str, Document]:
    """The pod spec of every workload, by the workload's name."""
    return {
        document["metadata"]["name"]: document["spec"]["template"]["spec"]
        for document in manifests()
        if "template" in document.get("spec", {})
    }


def all_containers() -> list[tuple[str, Document, Document]]:
    """Every container with its workload's name and its pod spec."""
    return [
        (name, pod, container)
        for name, pod in pods().items()
        for container in [*pod.get("initContainers", []), *pod["containers"]]
    ]


def containers() -> list[tuple[str, Document, Document]]:
    """The containers of the service, without those of jobs that are added by choice."""
    return [found for found in all_containers() if found[0] != FIRST_KEYS]


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
        *(container["image"] for _, _, container in all_containers()),
        *(service["image"] for service in services().values()),
        *(f"{image['newName']}:{image['newTag']}" for image in kustomization["images"]),
        *re.findall(r"^FROM (\S+)", dockerfile, flags=re.MULTILINE),
    ]


def test_the_workloads_are_the_expected_ones() -> None:
    assert {path.name for path in YAML_FILES} >= {"compose.yaml", "kustomization.yaml", "secret.example.yaml"}
    assert set(pods()) == {"palimpsest-api", "palimpsest-worker", "palimpsest-migrate", FIRST_KEYS}
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
    for name, pod, container in all_containers():
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
    used = {entry["name"] for _, _, container in containers() for entry in container.get("env", [])}
    used |= {name for document in manifests("ConfigMap") for name in document["data"]}
    used |= {name for document in manifests("Secret") for name in document["stringData"]} - {"FIRST_ADMIN_KEY"}
    used |= {name for service in own_services().values() for name in service["environment"]}
    used |= {name for names in offered_secrets().values() for name in names}
    assert used
    assert used - set(ENVIRONMENT_VARIABLES) == set()
    assert "OPENAI_API_KEY" in SECRET_VARIABLES


def offered_secrets() -> dict[str, set[str]]:
    """The settings that each Secret of the example has, those in comments too, by the Secret's name."""
    text = (KUBERNETES / "secret.example.yaml").read_text(encoding="utf-8")
    return {
        yaml.safe_load(part)["metadata"]["name"]: set(re.findall(r"^  (?:# )?([A-Z_]+): ", part, flags=re.MULTILINE))
        for part in text.split("\n---\n")
    }


def sources(container: Document, kind: str) -> set[str]:
    """The ConfigMaps or Secrets from which a container gets all settings."""
    return {source[kind]["name"] for source in container.get("envFrom", []) if kind in source}


def given_secrets(container: Document) -> set[str]:
    """The secret settings that a container gets when the Secrets have them all."""
    offered = offered_secrets()
    whole = {name for source in sources(container, "secretRef") for name in offered[source]}
    single = [entry["valueFrom"]["secretKeyRef"] for entry in container.get("env", []) if "valueFrom" in entry]
    assert all(reference["key"] in offered[reference["name"]] for reference in single)
    return whole | {reference["key"] for reference in single}


def test_every_setting_reaches_every_process_that_reads_it_in_kubernetes() -> None:
    for name, _, container in containers():
        assert sources(container, "configMapRef") == {"palimpsest"}, name
    offered = offered_secrets()
    assert sorted(name for names in offered.values() for name in names) == sorted(SECRET_VARIABLES)
    given = {name: given_secrets(container) for name, _, container in containers()}
    providers = {name for name in SECRET_VARIABLES if name.endswith("_API_KEY")}
    assert given["palimpsest-api"] == SECRET_VARIABLES - {"DATABASE_MIGRATION_URL"}
    assert given["palimpsest-worker"] == given["palimpsest-api"] - {"PLATFORM_KEY"}
    assert given["palimpsest-migrate"] == {"DATABASE_URL", "DATABASE_MIGRATION_URL"} | providers


def test_every_setting_reaches_every_process_that_reads_it_in_compose() -> None:
    # Either free to be set in settings.env, or taken from deploy/.env, or fixed by how the containers are joined.
    fixed = {"DATABASE_URL", "DATABASE_MIGRATION_URL", "HOST", "PORT", "MONITORING_PORT"}
    for name, service in own_services().items():
        assert service["env_file"] == [{"path": "settings.env", "required": False}], name
        for variable, value in service["environment"].items():
            assert variable in fixed or value.startswith(f"${{{variable}:"), (name, variable)
            assert not value.endswith(":-}"), f"{name}: an empty {variable} would hide the one in settings.env"
    assert {name for name, service in own_services().items() if "PLATFORM_KEY" in service["environment"]} == {"api"}
    ignored = (DEPLOY / ".gitignore").read_text(encoding="utf-8").splitlines()
    secrets = {"kubernetes/secret.yaml", "kubernetes/components/first-keys/secret.yaml"}
    assert {".env", "settings.env", *secrets} <= set(ignored)


def environment_of(workload: str, secrets: dict[str, dict[str, str]], **changes: str) -> dict[str, str]:
    """The environment that Kubernetes would give to a workload's container."""
    (container,) = pods()[workload]["containers"]
    found: dict[str, str] = {}
    for source in container["envFrom"]:
        if "configMapRef" in source:
            found |= named("ConfigMap", source["configMapRef"]["name"])["data"]
        else:
            found |= secrets[source["secretRef"]["name"]]
    for entry in container.get("env", []):
        reference = entry["valueFrom"]["secretKeyRef"]
        value = secrets[reference["name"]].get(reference["key"])
        assert value is not None or reference.get("optional"), entry["name"]
        found |= {} if value is None else {entry["name"]: value}
    return {**found, **changes}


@pytest.mark.slow
def test_the_commands_and_settings_of_the_manifests_run(
    tmp_path: Path, empty_database: str, superuser_conninfo: str, app_password: str
) -> None:
    login = {"password": app_password} if app_password else {}
    secrets = {
        "palimpsest": {
            "DATABASE_URL": as_url(make_conninfo(empty_database, user="palimpsest_app", **login)),
            "METRICS_TOKEN": TOKEN,
            "OPENAI_API_KEY": "key-of-a-provider",
        },
        "palimpsest-api": {"PLATFORM_KEY": TOKEN[::-1]},
        "palimpsest-migration": {"DATABASE_MIGRATION_URL": as_url(empty_database)},
    }
    # Dimensions in the name: nobody is asked for them.
    model = {"EMBEDDING_MODEL": "openai/text-embedding-3-small@256"}
    arguments = {name: container["args"] for name, _, container in containers()}
    migrated = palimpsest(*arguments["palimpsest-migrate"], **environment_of("palimpsest-migrate", secrets, **model))
    assert migrated.returncode == 0, migrated.stderr
    assert "as set by EMBEDDING_MODEL" in migrated.stderr
    for workload, variable in (("palimpsest-api", "PORT"), ("palimpsest-worker", "MONITORING_PORT")):
        port, log = str(free_port()), tmp_path / workload
        # The address is the only difference: the tests open no port to the network.
        changes = {variable: port, "HOST": "127.0.0.1", **model}
        process = spawn(*arguments[workload], log=log, **environment_of(workload, secrets, **changes))
        try:
            url = f"http://127.0.0.1:{port}"
            wait_until_ready(url, process, log)
            assert httpx.get(f"{url}/metrics", timeout=30).status_code == 401
            headers = {"Authorization": f"Bearer {TOKEN}"}
            assert httpx.get(f"{url}/metrics", headers=headers, timeout=30).status_code == 200
        finally:
            stop(process)


def test_secrets_only_come_from_secret_keys() -> None:
    offered = {(secret["metadata"]["name"], key) for secret in manifests("Secret") for key in secret["stringData"]}
    for name, _, container in all_containers():
        for source in container.get("envFrom", []):
            assert set(source) <= {"configMapRef", "secretRef"}, name
            assert source.get("secretRef", {}).get("name") != "palimpsest-migration", name
        for entry in container.get("env", []):
            if entry["name"] in SECRET_VARIABLES | {"FIRST_ADMIN_KEY"}:
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
    given = {name for name, _, container in containers() if "DATABASE_MIGRATION_URL" in given_secrets(container)}
    assert given == {"palimpsest-migrate"}
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
        assert str(ports[container[probe]["httpGet"]["port"]]) == configuration["data"]["MONITORING_PORT"]
    assert str(ports["http"]) == configuration["data"]["PORT"]
    (rule,) = named("NetworkPolicy", "palimpsest-api")["spec"]["ingress"]
    assert {port["port"] for port in rule["ports"]} == set(ports.values())
    assert configuration["data"]["HOST"] == "0.0.0.0"
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    assert pause + float(configuration["data"]["DRAIN_SECONDS"]) < pod["terminationGracePeriodSeconds"] == 40
    (service,) = manifests("Service")
    assert service["spec"]["ports"][0]["targetPort"] in ports


def memory(text: str) -> int:
    """A quantity of Kubernetes or compose in bytes."""
    number, unit = re.fullmatch(r"(\d+)([KMGkmg])i?", text).groups()  # type: ignore[union-attr]
    return int(number) * 1024 ** (1 + "kmg".index(unit.lower()))


def preset(value: str) -> str:
    """What compose uses for `${NAME:-value}` while nothing is set."""
    return re.fullmatch(r"\$\{\w+:-(.+)\}", value)[1]  # type: ignore[index]


def test_a_worker_is_probed_on_its_own_port() -> None:
    (container,) = pods()["palimpsest-worker"]["containers"]
    (configuration,) = manifests("ConfigMap")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe, path in (("readinessProbe", "/ready"), ("livenessProbe", "/health")):
        assert container[probe]["httpGet"]["path"] == path
        assert str(ports[container[probe]["httpGet"]["port"]]) == configuration["data"]["MONITORING_PORT"]
    policy = named("NetworkPolicy", "palimpsest-worker")
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
        (preset(worker["mem_limit"]), preset(worker["environment"]["DOCUMENT_READERS"])),
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
            if policy["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component") != "worker"
        ),
    ]
    assert all(selector.items() <= labels.items() for selector in selectors)


def test_all_kustomization_resources_exist_and_nothing_is_left_out() -> None:
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    resources = kustomization["resources"]
    assert all((KUBERNETES / resource).is_file() for resource in resources)
    apart = {"kustomization.yaml", "secret.example.yaml"}
    assert {path.name for path in YAML_FILES if path.parent == KUBERNETES} - apart == set(resources)


def egress(policy: Document) -> set[int]:
    """The ports that a policy lets out, except those for names."""
    return {port["port"] for rule in policy["spec"].get("egress", []) for port in rule["ports"]} - {53}


def patched_settings(component: Path) -> dict[str, str]:
    """The settings that a component changes in the ConfigMap."""
    (kustomization,) = documents(component / "kustomization.yaml")
    patches = kustomization.get("patches", [])
    assert all(patch["target"] == {"kind": "ConfigMap", "name": "palimpsest"} for patch in patches)
    return {name: value for patch in patches for name, value in yaml.safe_load(patch["patch"])["data"].items()}


def test_nothing_but_the_database_and_traces_can_be_reached_by_default() -> None:
    default = [policy for path in KUBERNETES.glob("*.yaml") for policy in documents(path)]
    policies = [policy for policy in default if policy["kind"] == "NetworkPolicy"]
    assert {port for policy in policies for port in egress(policy)} == {5432, 6432, 4318}
    # A setting that needs the web is off as long as the web cannot be reached.
    assert named("ConfigMap", "palimpsest")["data"]["DOCUMENT_FETCH"] == "off"
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    assert "components" not in kustomization


@pytest.mark.parametrize(
    ("component", "ports", "settings", "pod"),
    [
        ("model-provider", {443}, {}, None),
        ("ollama", {11434}, {"OLLAMA_URL": "http://ollama:11434"}, None),
        ("document-fetch", {80, 443}, {"DOCUMENT_FETCH": "on"}, "worker"),
    ],
)
def test_a_component_opens_what_its_setting_needs(
    component: str, ports: set[int], settings: dict[str, str], pod: str | None
) -> None:
    folder = KUBERNETES / "components" / component
    (kustomization,) = documents(folder / "kustomization.yaml")
    assert (kustomization["kind"], kustomization["resources"]) == ("Component", ["networkpolicy.yaml"])
    (policy,) = documents(folder / "networkpolicy.yaml")
    assert (policy["spec"]["policyTypes"], egress(policy)) == (["Egress"], ports)
    assert policy["spec"]["podSelector"]["matchLabels"].get("app.kubernetes.io/component") == pod
    assert patched_settings(folder) == settings
    assert read_settings(settings) is not None
    hint = (KUBERNETES / "kustomization.yaml").read_text(encoding="utf-8")
    assert f"#   - components/{component}\n" in hint
    assert f"`{component}`" in (DEPLOY / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("component", ["model-provider", "document-fetch"])
def test_the_web_is_opened_without_private_networks(component: str) -> None:
    (policy,) = documents(KUBERNETES / "components" / component / "networkpolicy.yaml")
    blocks = [place["ipBlock"] for rule in policy["spec"]["egress"] for place in rule["to"]]

    def reachable(address: str) -> bool:
        found = ipaddress.ip_address(address)
        return any(
            found in ipaddress.ip_network(block["cidr"])
            and not any(found in ipaddress.ip_network(network) for network in block.get("except", []))
            for block in blocks
        )

    private = "10.96.0.1 127.0.0.1 169.254.169.254 172.20.0.1 192.168.1.1 100.64.0.1 224.0.0.1 ::1 fe80::1 fd00::1"
    assert not [address for address in private.split() if reachable(address)]
    assert all(reachable(address) for address in ("1.1.1.1", "104.18.7.192", "2606:4700::1111"))


def test_the_migration_can_be_applied_before_the_deployments() -> None:
    """The selector in the instructions takes the job and what it needs, and leaves the deployments for later."""
    selector = "'app.kubernetes.io/component notin (api, worker)'"
    assert selector in (DEPLOY / "README.md").read_text(encoding="utf-8")
    (kustomization,) = documents(KUBERNETES / "kustomization.yaml")
    first = {
        (document["kind"], document["metadata"]["name"])
        for resource in kustomization["resources"]
        for document in documents(KUBERNETES / resource)
        if document["metadata"]["labels"].get("app.kubernetes.io/component") not in {"api", "worker"}
    }
    assert first == {
        ("ConfigMap", "palimpsest"),
        ("Job", "palimpsest-migrate"),
        ("NetworkPolicy", "palimpsest"),
    }


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
@pytest.mark.parametrize("component", [None, *(folder.name for folder in COMPONENTS)])
def test_kubectl_builds_the_kustomization(tmp_path: Path, component: str | None) -> None:
    folder = tmp_path / "kubernetes"
    shutil.copytree(KUBERNETES, folder)
    if component is not None:
        with (folder / "kustomization.yaml").open("a", encoding="utf-8") as kustomization:
            kustomization.write(f"\ncomponents:\n  - components/{component}\n")
    built = subprocess.run(
        ["kubectl", "kustomize", str(folder)], capture_output=True, text=True, timeout=120, check=False
    )
    assert built.returncode == 0, built.stderr
    objects = [document for document in yaml.safe_load_all(built.stdout) if document is not None]
    (configuration,) = [document for document in objects if document["kind"] == "ConfigMap"]
    if component is not None:
        assert patched_settings(folder / "components" / component).items() <= configuration["data"].items()
    assert {document["kind"] for document in objects} >= {"ConfigMap", "Deployment", "Job", "NetworkPolicy", "Service"}


def section(heading: str) -> str:
    """The text of a section of the instructions."""
    text = (DEPLOY / "README.md").read_text(encoding="utf-8")
    return text.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]


def shell(script: str, **variables: str) -> str:
    """Run lines of the instructions and return what they print."""
    environment = {"PATH": os.environ["PATH"], **variables}
    ran = subprocess.run(
        ["bash", "-eu", "-c", script], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


def first_key_commands(tenant: str = "acme") -> list[list[str]]:
    """The command lines of the job for a tenant, in the order in which Kubernetes runs them."""
    return [
        [argument.replace("acme", tenant) for argument in container["args"]]
        for name, _, container in all_containers()
        if name == FIRST_KEYS
    ]


def made_key() -> str:
    """A key as the instructions make it."""
    (line,) = [line for line in section("First keys").splitlines() if line.startswith("printf 'pk_")]
    return shell(line).strip()


def test_the_job_creates_the_key_of_a_secret_and_prints_none(
    database: TestDatabase, service: RunningService, as_key: Callable[..., httpx.Client]
) -> None:
    key = made_key()
    environment = {"DATABASE_URL": database.url("app"), "FIRST_ADMIN_KEY": key}
    for state in ("created", "already exists"):
        ran = [palimpsest(*command, **environment) for command in first_key_commands("manifests")]
        assert [item.returncode for item in ran] == [0, 0, 0], [item.stderr for item in ran]
        output = "".join(item.stdout + item.stderr for item in ran)
        assert output.count(state) == 3
        assert key.rpartition("_")[2] not in output
    admin = as_key(key, "web")
    me = admin.get("/v1/whoami").json()
    assert (me["tenant_id"], me["project_id"], me["kind"]) == ("manifests", "web", "admin")
    issued = admin.post("/v1/admin/keys", json={"kind": "agent", "agent_id": "robin", "project_id": "web"})
    assert issued.status_code == 201
    assert as_key(issued.json()["key"]).post("/v1/notes", json={"content": "Tea is kept."}).status_code == 201
    with psycopg.connect(database.superuser) as connection:
        logged = connection.execute(
            "SELECT count(*) FROM audit_log WHERE tenant_id = 'manifests' AND event_type = 'key_issue'"
        ).fetchone()
    assert logged == (2,), "the job's key and the agent's, each once"
    assert key not in service.output()


def test_a_job_refuses_keys_that_are_not_its_own(database: TestDatabase) -> None:
    create = first_key_commands()[-1]
    url = database.url("app")
    for tenant in ("acme", "other"):
        assert palimpsest("tenants", "create", tenant, DATABASE_URL=url).returncode == 0
    key, another = made_key(), made_key()
    assert palimpsest(*create, DATABASE_URL=url, FIRST_ADMIN_KEY=key).returncode == 0
    elsewhere = first_key_commands("other")[-1]
    same_id = key.rpartition("_")[0] + "_" + another.rpartition("_")[2]
    typed = f"pk_{'0' * 31}1_{'a' * 43}"
    for command, given, code in (
        (elsewhere, key, "key_id_taken"),
        (elsewhere, same_id, "key_id_taken"),
        (create, same_id, "key_id_taken"),
        (create, typed, "invalid_key"),
        (create, "pk_CHANGE-ME", "invalid_key"),
        (create, "", "FIRST_ADMIN_KEY is not set"),
        (["keys", "create", "--kind", "platform", "--from-env", "FIRST_ADMIN_KEY"], key, "PLATFORM_KEY"),
    ):
        refused = palimpsest(*command, DATABASE_URL=url, FIRST_ADMIN_KEY=given)
        assert refused.returncode != 0, given
        assert code in refused.stderr
        assert not given or given.rpartition("_")[2] not in refused.stdout + refused.stderr
    assert palimpsest("keys", "revoke", key, DATABASE_URL=url).returncode == 0
    assert "key_revoked" in palimpsest(*create, DATABASE_URL=url, FIRST_ADMIN_KEY=key).stderr


def test_first_keys_are_created_over_http_as_described(service: RunningService) -> None:
    lines = [line for line in section("First keys").splitlines() if line.startswith("curl ")]
    printed = shell("\necho\n".join(lines), URL=service.url, PLATFORM_KEY=PLATFORM_KEY)
    key = json.loads(printed.splitlines()[-1])["key"]
    headers = {"Authorization": f"Bearer {key}", "X-Project-Id": "web"}
    me = httpx.get(f"{service.url}/v1/whoami", headers=headers, timeout=30).json()
    assert (me["tenant_id"], me["project_id"], me["kind"]) == ("acme", "web", "admin")
