"""Secrets of the file appear nowhere else: output, logs, files and processes are searched."""

import json
import os
import re
import shutil
import signal
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import dagster as dg
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from assets.definitions import build_definitions
from deltamirror.cli.main import main
from tests.support.brokers import Record, create_topic, produce, run_cli
from tests.support.certificates import MARK, STORE_PASSWORD
from tests.support.secured_broker import PASSWORD, log_in, secured_brokers
from tests.support.world import World, until

pytestmark = [pytest.mark.kafka, pytest.mark.story]

WRONG, KEY_PASSWORD, CLIENT_SECRET = f"{MARK}wrong", f"{MARK}key", f"{MARK}client"
MISSPELT = f"{MARK}misspelt"

# The client has no other call for Connect's groups, and its error would hide all others here.
looks_for_mirrormaker_2 = pytest.mark.filterwarnings("ignore:list_groups:DeprecationWarning")


@pytest.fixture(scope="module")
def secured(tmp_path_factory):
    with secured_brokers(tmp_path_factory.mktemp("secured"), "us-east", "eu-west") as made:
        yield made


@pytest.fixture
def here(secured, tmp_path, names, env):
    """A world with secrets of every kind, as plain values and with each provider."""
    certificates, (source, target) = secured
    home = tmp_path / "etc"
    (home / "secrets").mkdir(parents=True)
    (home / "secrets" / "key").write_text(certificates.client.encrypted_key(KEY_PASSWORD))
    (home / "secrets" / "chain").write_text(certificates.client.certificate.read_text())
    (home / "secrets.properties").write_text(f"store = {STORE_PASSWORD}\n")
    of_source = {
        "bootstrap.servers": source.at("SASLTLS"),
        "security.protocol": "SASL_SSL",
        **log_in("SCRAM-SHA-512"),
        "ssl.truststore.location": str(certificates.authority.truststore("JKS")),
        "ssl.truststore.password": "${file:secrets.properties:store}",
    }
    of_target = {
        "bootstrap.servers": target.at("MUTUAL"),
        "security.protocol": "SSL",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(certificates.authority.truststore("PKCS12")),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "${dir:secrets:chain}",
        "ssl.keystore.key": "${dir:secrets:key}",
        "ssl.key.password": "${env:KEY_PASSWORD}",
        "sasl.oauthbearer.client.credentials.client.secret": CLIENT_SECRET,
    }
    extra = {f"us-east.{name}": value for name, value in of_source.items()}
    extra |= {f"eu-west.{name}": value for name, value in of_target.items()}
    extra |= {"deltamirror.metrics.listen": "127.0.0.1:0"}
    topic = names("orders")
    create_topic(source.bootstrap_servers, topic)
    produce(source.bootstrap_servers, topic, [Record(b"k", b"v%d" % n) for n in range(9)])
    world = World(home, source, target, [topic], extra)
    yield world
    world.end()


@pytest.fixture
def hidden(here, secured):
    """Texts that must not be found: the marker in passwords, and lines of the key."""
    certificates, _ = secured
    encrypted = (here.home / "secrets" / "key").read_text().splitlines()
    plain = certificates.client.key.read_text().splitlines()
    return [each.encode() for each in (MARK, encrypted[2], plain[2])]


@pytest.fixture
def private_folder(tmp_path):
    """Folder for Dagster's home and the temporary files of a run's processes."""
    for name in ("dagster", "tmp"):
        (tmp_path / name).mkdir()
    return tmp_path


@pytest.fixture
def env(private_folder, monkeypatch):
    """Set the environment: the key's password, Dagster's home and a temporary folder."""
    variables = {
        "KEY_PASSWORD": KEY_PASSWORD,
        "DAGSTER_HOME": str(private_folder / "dagster"),
        "TMPDIR": str(private_folder / "tmp"),
        "SPARK_LOCAL_DIRS": str(private_folder / "tmp"),
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    return variables


def leaks(hidden, text, where):
    data = text.encode() if isinstance(text, str) else text
    return [f"{where}: {mark.decode()}" for mark in hidden if mark in data]


def leaks_of_folder(hidden, folder):
    """Return the secrets found in the files of *folder*; Parquet, which is packed, by rows."""
    found = []
    files = [Path(at, name) for at, _, names in os.walk(folder) for name in names]
    for path in files:
        # Spark and keytool may delete their files during the search.
        try:
            if path.suffix == ".parquet":
                found += leaks(hidden, repr(pq.ParquetFile(path).read().to_pylist()), path)
            found += leaks(hidden, path.read_bytes(), path)
        except OSError:
            continue
    return found


@contextmanager
def watched(hidden, private_folder):
    """Search repeatedly the arguments, environments and files of this machine's processes."""
    found, looks, stop = [], [], threading.Event()

    def look():
        for process in Path("/proc").glob("[0-9]*"):
            try:
                line = (process / "cmdline").read_bytes()
                surroundings = (process / "environ").read_bytes()
            except OSError:
                continue
            found.extend(leaks(hidden, line, line))
            # The file takes the key's password from the environment; keytool, which
            # runs for a second, has a store's password in its environment.
            given = surroundings.replace(KEY_PASSWORD.encode(), b"")
            if b"keytool" not in line:
                found.extend(leaks(hidden, given, f"environment of {line!r}"))
            looks.append(line)
        found.extend(leaks_of_folder(hidden, private_folder / "tmp"))

    def watch():
        while not stop.wait(0.2):
            look()

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found, looks
    finally:
        stop.set()
        thread.join()


def with_line(here, line):
    """Return a copy of the file with *line* added, which overrides an earlier line."""
    path = here.home / f"other-{abs(hash(line))}.properties"
    path.write_text(here.path.read_text() + line + "\n")
    return path


def wrong_login(here):
    java = log_in("SCRAM-SHA-512", password=WRONG)["sasl.jaas.config"]
    return with_line(here, f"us-east.sasl.jaas.config = {java}")


def test_a_run_and_its_child_processes_show_and_leave_no_secret(here, hidden, private_folder, env):
    with watched(hidden, private_folder) as (found, looks):
        run = run_cli("run", "--until-caught-up", "--config", here.path, env=env)
        assert run.returncode == 0, run.stderr

    assert len(here.arrived(*here.topics)) == 9
    assert any(b"java" in line and b"SparkSubmit" in line for line in looks)
    assert found == []
    assert leaks(hidden, run.stdout + run.stderr, "what it said") == []
    assert leaks_of_folder(hidden, here.home / "lake") == []
    assert leaks_of_folder(hidden, private_folder / "dagster") == []
    assert list((private_folder / "dagster").rglob("*.db"))


def output_of(*command):
    """Run a command in this process; return its output and its exit code."""
    done = CliRunner().invoke(main, [str(word) for word in command])
    assert done.output
    return done.output, done.exit_code


@pytest.mark.parametrize("form", ["table", "json"])
def test_a_successful_command_shows_no_secret(here, hidden, form):
    for command in (["status"], ["lag"], ["plan"], ["config", "check"]):
        shown, code = output_of(*command, "--format", form, "--config", here.path)
        assert (leaks(hidden, shown, command), code) == ([], 0)


@looks_for_mirrormaker_2
def test_export_to_and_import_from_mirrormaker_2_show_no_secret(here, hidden, caplog):
    here.mirror()
    for form in ("table", "json"):
        failed, code = output_of("export-mm2", "--format", form, "--config", wrong_login(here))
        assert "password is wrong" in failed
        assert (leaks(hidden, failed + caplog.text, "export-mm2"), code) == ([], 1)
        given, code = output_of("export-mm2", "--format", form, "--config", here.path)
        assert (leaks(hidden, given, "export-mm2"), code) == ([], 0)
        # MirrorMaker 2 has not continued, so the flow is still deltamirror's: an error.
        taken, code = output_of("import-mm2", "--format", form, "--config", here.path)
        assert (leaks(hidden, taken, "import-mm2"), code) == ([], 1)
        assert here.topics[0] in given
        assert here.topics[0] in taken


@looks_for_mirrormaker_2
def test_a_command_that_cannot_log_in_shows_no_secret(here, hidden, caplog):
    path = wrong_login(here)
    for form, *command in (
        ("table", "status"),
        ("json", "status"),
        ("json", "plan"),
        ("table", "plan"),
        ("table", "import-mm2"),
        ("json", "import-mm2"),
        ("table", "run", "--until-caught-up"),
    ):
        shown, _ = output_of(*command, "--format", form, "--config", path)
        assert "password is wrong" in shown
        assert leaks(hidden, shown + caplog.text, command) == []


def pages(here):
    """Return the pages /metrics and /healthz of each started run."""
    shown = []
    for address in re.findall(r"served: (\S+)/metrics", here.log()):
        for name in ("metrics", "healthz"):
            try:
                with urllib.request.urlopen(f"{address}/{name}", timeout=30) as answer:
                    shown.append(answer.read().decode())
            except urllib.error.HTTPError as unwell:  # /healthz of a failing loop
                with unwell:
                    shown.append(unwell.read().decode())
    return shown


def stop(run):
    os.kill(run.pid, signal.SIGTERM)
    run.wait(60)


def test_http_pages_and_logs_of_a_run_and_its_standby_show_no_secret(here, hidden):
    runs = [here.start()]
    until(lambda: has_arrived(here), "it mirrors")
    runs.append(here.start("--standby"))
    until(lambda: "standby: " in here.log(), "the standby waits")
    until(lambda: len(pages(here)) == 4, "both show their pages")
    shown = pages(here)
    for run in runs:
        stop(run)

    assert any(here.topics[0] in page for page in shown)
    assert leaks(hidden, "".join(shown), "pages") == []
    assert leaks(hidden, here.log(), "logs") == []


def has_arrived(here):
    try:
        return len(here.arrived(*here.topics)) == 9
    except KeyError:
        return False


def test_a_loop_that_cannot_log_in_reports_no_secret(here, hidden):
    shutil.copy(wrong_login(here), here.path)
    run = here.start("--standby")
    until(lambda: "password is wrong" in here.log(), "the login is refused")
    until(lambda: list((here.home / "lake" / "bulletins").glob("stage*")), "a status file")
    until(lambda: any("password is wrong" in page for page in pages(here)), "the error in /healthz")
    shown = pages(here)
    stop(run)

    assert leaks(hidden, "".join(shown), "pages") == []
    assert leaks(hidden, here.log(), "log") == []
    assert leaks_of_folder(hidden, here.home / "lake") == []


@pytest.mark.parametrize(
    "line",
    [
        pytest.param(f"us-east.sasl.jaas.confg = {MISSPELT}", id="misspelt"),
        pytest.param(f"us-east.ssl.truststore.pasword = {MISSPELT}", id="misspelt password"),
        pytest.param(f"us-east.sasl.jaas.config = {MISSPELT}", id="no login module"),
        pytest.param(f"eu-west.ssl.key.password = {MISSPELT}", id="wrong key password"),
        pytest.param(f"us-east.ssl.truststore.password = {MISSPELT}", id="wrong store password"),
        pytest.param(f"eu-west.ssl.keystore.key = {MISSPELT}", id="no key"),
        pytest.param("us-east.ssl.keystore.key = -----BEGIN\n{key}\n-----END", id="broken lines"),
    ],
)
def test_an_invalid_file_is_refused_without_showing_the_invalid_value(here, hidden, secured, line):
    key = secured[0].client.key.read_text().splitlines()[2]
    path = with_line(here, line.replace("{key}", key))
    for form in ("table", "json"):
        checked, _ = output_of("config", "check", "--format", form, "--config", path)
        assert leaks(hidden, checked, form) == []
        for command in (["run", "--until-caught-up"], ["plan"], ["import-mm2"], ["export-mm2"]):
            shown, code = output_of(*command, "--format", form, "--config", path)
            assert (leaks(hidden, shown, command), code) == ([], 2)


def test_dagster_stores_and_shows_no_secret(here, hidden, private_folder):
    with dg.DagsterInstance.local_temp(str(private_folder / "dagster")) as instance:
        for path, is_well in ((here.path, True), (wrong_login(here), False)):
            defs = build_definitions(path)
            asset = defs.resolve_assets_def(dg.AssetKey(["us-east", "group_offsets"]))
            done = dg.materialize([asset], instance=instance, raise_on_error=False)
            assert done.success is is_well
            shown = [str(each) for each in instance.all_logs(done.run_id)]
            assert leaks(hidden, "\n".join(shown), "event log") == []
            assert (
                leaks(hidden, json.dumps(instance.get_run_by_id(done.run_id).run_config), "") == []
            )

    assert leaks_of_folder(hidden, private_folder / "dagster") == []
    assert leaks(hidden, PASSWORD, "the search finds what is there") != []
