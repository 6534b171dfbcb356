"""The Helm chart: rendered by Helm's own code, its objects judged by the schemas of Kubernetes."""

from __future__ import annotations

import tomllib
from collections.abc import Generator, Mapping
from typing import Any, Final

import pytest

from legation.config import structure
from legation_server.settings import DEFAULT

from .commands import parse
from .container import read_containerfile
from .programs import DEPLOY, ROOT

CHART: Final = DEPLOY / "helm/legation"
VERSIONS: Final = ("1.27", "1.37")
"""Of Kubernetes: the oldest that the chart names, and the newest with a schema here."""

VALUES: Final = tuple(sorted((CHART / "ci").glob("*-values.yaml")))

helm: Any = pytest.importorskip("helm_python", reason="nox -s deploy installs it")
kubernetes: Any = pytest.importorskip("kubernetes_validate")
yaml: Any = pytest.importorskip("yaml")

Object = Mapping[str, Any]


@pytest.fixture(scope="module")
def chart() -> Generator[Any]:
    with helm.Chart.load(str(CHART)) as loaded:
        yield loaded


def render(chart: Any, values: Mapping[str, Any], name: str = "desk") -> list[Object]:
    """Return the objects of a release."""
    files = chart.render(values, name=name, namespace="agents")
    return [
        found
        for path, text in files.items()
        if path.endswith(".yaml")
        for found in yaml.safe_load_all(text)
        if found is not None
    ]


@pytest.fixture(params=VALUES, ids=lambda path: path.stem)
def objects(chart: Any, request: pytest.FixtureRequest) -> list[Object]:
    return render(chart, yaml.safe_load(request.param.read_text()))


def one(objects: list[Object], kind: str) -> Any:
    (found,) = (each for each in objects if each["kind"] == kind)
    return found


def pods(objects: list[Object]) -> list[Any]:
    """Return the templates of all pods."""
    return [each["spec"]["template"] for each in objects if each["kind"] in ("Deployment", "Job")]


def test_lint_finds_nothing() -> None:
    found = helm.lint(str(CHART), values=yaml.safe_load(VALUES[0].read_text()))

    assert found["errors"] == []


def test_values_without_a_secret_are_refused_in_words(chart: Any) -> None:
    with pytest.raises(helm.HelmValuesError, match="existingSecret"):
        chart.validate_schema({})


@pytest.mark.parametrize("version", VERSIONS)
def test_objects_are_those_of_kubernetes(objects: list[Object], version: str) -> None:
    for each in objects:
        if each["kind"] != "ServiceMonitor":  # of the Prometheus operator, which brings its schema
            kubernetes.validate(each, version, strict=True)


def test_objects_of_a_release_have_names_of_their_own(objects: list[Object]) -> None:
    names = [(each["kind"], each["metadata"]["name"]) for each in objects]

    assert len(set(names)) == len(names)
    assert all(name.startswith("desk") for _, name in names)


def test_long_name_of_a_release_is_cut(chart: Any) -> None:
    values = yaml.safe_load(VALUES[0].read_text())
    for each in render(chart, values, "a" * 53):
        assert len(each["metadata"]["name"]) <= 63


def test_pods_have_no_rights(objects: list[Object]) -> None:
    user, group = read_containerfile()[-1].user.split(":")
    for pod in pods(objects):
        spec = pod["spec"]
        assert spec["automountServiceAccountToken"] is False
        security = spec["securityContext"]
        assert security["runAsNonRoot"] is True
        assert (security["runAsUser"], security["runAsGroup"]) == (int(user), int(group))
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["limits"]["memory"]
        mounts = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert mounts.keys() == {volume["name"] for volume in spec["volumes"]}
        assert all(mounts[name]["readOnly"] for name in ("platform", "secrets"))


def test_commands_are_those_of_the_real_command_line(objects: list[Object]) -> None:
    for pod in pods(objects):
        (container,) = pod["spec"]["containers"]
        assert parse(container["args"])
        folder = read_containerfile()[-1].folder
        assert f"{folder}/platform.toml" in {m["mountPath"] for m in container["volumeMounts"]}


def test_platform_of_the_values_is_one(objects: list[Object]) -> None:
    for each in objects:
        if each["kind"] == "ConfigMap":
            structure(tomllib.loads(each["data"]["platform.toml"]))


def test_selectors_find_the_pods_of_the_server_and_no_other(objects: list[Object]) -> None:
    deployment = one(objects, "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"].items()

    assert selector <= deployment["spec"]["template"]["metadata"]["labels"].items()
    assert one(objects, "Service")["spec"]["selector"].items() == selector
    for budget in (each for each in objects if each["kind"] == "PodDisruptionBudget"):
        assert budget["spec"]["selector"]["matchLabels"].items() == selector
    for job in (each for each in objects if each["kind"] == "Job"):
        assert not selector <= job["spec"]["template"]["metadata"]["labels"].items()


def test_no_pod_ends_before_another_is_ready(objects: list[Object]) -> None:
    spec = one(objects, "Deployment")["spec"]
    (container,) = spec["template"]["spec"]["containers"]

    assert spec["strategy"]["rollingUpdate"] == {"maxUnavailable": 0, "maxSurge": 1}
    assert container["readinessProbe"]["httpGet"] == {"path": "/ready", "port": "http"}
    for name in ("startupProbe", "livenessProbe"):
        assert container[name]["httpGet"] == {"path": "/health", "port": "http"}
    assert [port["containerPort"] for port in container["ports"]] == [7777]


def test_pod_has_the_time_that_its_server_needs_to_drain(objects: list[Object]) -> None:
    spec = one(objects, "Deployment")["spec"]["template"]["spec"]
    (container,) = spec["containers"]
    (drain,) = (word for word in container["args"] if "drain_seconds" in word)
    pause = int(container["lifecycle"]["preStop"]["exec"]["command"][1])
    seconds = int(drain.rpartition("=")[2])

    assert spec["terminationGracePeriodSeconds"] >= seconds + pause + 10


def test_schema_is_migrated_before_the_pods_are_replaced(objects: list[Object]) -> None:
    jobs = [each for each in objects if each["kind"] == "Job"]
    needed = [each for each in objects if each["metadata"]["name"] == "desk-migrate"]

    assert len(jobs) >= 1
    assert len(needed) == 1
    for each in (*jobs, *needed):
        hooks = each["metadata"]["annotations"]
        assert hooks["helm.sh/hook"] == "pre-install,pre-upgrade"
    weights = [
        int(each["metadata"]["annotations"]["helm.sh/hook-weight"]) for each in (*needed, *jobs)
    ]
    assert weights == sorted(weights)
    assert weights[0] < weights[1]


def test_another_platform_replaces_the_pods(chart: Any) -> None:
    values = yaml.safe_load(VALUES[0].read_text())
    platform = '[[agents]]\nid = "other"\n'
    before, after = (
        one(render(chart, {**values, **more}), "Deployment")["spec"]["template"]["metadata"]
        for more in ({}, {"platform": platform})
    )

    assert before["labels"] == after["labels"]
    assert before["annotations"] != after["annotations"]


def test_service_monitor_asks_for_the_metrics(chart: Any) -> None:
    values = {**yaml.safe_load(VALUES[0].read_text()), "serviceMonitor": {"enabled": True}}
    monitor = one(render(chart, values), "ServiceMonitor")
    (endpoint,) = monitor["spec"]["endpoints"]

    assert endpoint["path"] == "/metrics/prometheus"
    assert endpoint["port"] == "http"
    assert endpoint["authorization"]["credentials"] == {"name": "legation-scraper", "key": "token"}


def test_version_of_the_chart_is_that_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    read = yaml.safe_load((CHART / "Chart.yaml").read_text())

    assert read["version"] == read["appVersion"] == project


def test_drain_is_the_default_of_the_server() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert values["drainSeconds"] == DEFAULT.drain_seconds
