"""A standby waits for other processes, and takes over each flow whose process has ended."""

import dataclasses
import threading
from contextlib import contextmanager

import pytest

from deltamirror.listener import Listener
from deltamirror.monitoring.metrics_server import health
from deltamirror.replay.replayer import FlowReplayer
from deltamirror.run import background as beside
from deltamirror.run.supervisor import Mirror
from resources.coordination.lease import Lease
from schemas.config.config import HeartbeatConfig
from schemas.config.flow import Flow
from schemas.errors.lake import LakeError, LeaseHeldError
from schemas.kafka.partition import TopicPartition
from tests.support.cli import run as command
from tests.support.fake_cluster import FakeCluster, FakeTarget, RecordContent
from tests.support.fake_context import InlinePool
from tests.support.loops import WAIT_S, looping_context, running_loops
from tests.support.world import until

EU, AP = Flow("us-east", "eu-west"), Flow("us-east", "ap-south")
BACK = Flow("eu-west", "us-east")
ORDERS, REMOTE = TopicPartition("orders", 0), TopicPartition("us-east.orders", 0)


@pytest.fixture
def begun(monkeypatch):
    """The flows and the heartbeats whose tasks were started."""
    found = []

    def periodic_tasks(context, flows, heartbeats, *_):
        found.append(([c.flow for c in flows], [h.flow for h in heartbeats]))
        return {}

    monkeypatch.setattr(beside, "periodic_tasks", periodic_tasks)
    return found


@pytest.fixture
def context(lake, monkeypatch, begun):
    """Flows from us-east into eu-west and ap-south."""
    made = looping_context(lake, monkeypatch)
    made._clusters["ap-south"] = FakeCluster("ap-south")
    monkeypatch.setattr(
        "deltamirror.worker_tasks.SlotProducer",
        lambda flow, slot, *_: FakeTarget(made._clusters[flow.target], flow, slot, None),
    )
    (flow,) = made.config.flows
    clusters = made.config.clusters
    made.config = dataclasses.replace(
        made.config,
        flows=(flow, dataclasses.replace(flow, flow=AP)),
        clusters={
            **clusters,
            "ap-south": dataclasses.replace(clusters["eu-west"], alias="ap-south"),
        },
    )
    made.lake.ensure_exists()
    return made


def write(context, *values):
    context.source.append(ORDERS, *map(RecordContent, values))


def shown(context, alias):
    log = context._clusters[alias]
    return [result.value for _, result in log.visible(REMOTE)] if REMOTE in log.logs else []


def arrives(context, alias, *values):
    until(lambda: shown(context, alias) == [*values], f"{values} arrive in {alias}", WAIT_S)


def standby(context, **options):
    return Mirror(context.config, **options, stop=threading.Event(), is_standby=True)


@contextmanager
def held(context, *flows):
    """Hold the leases of *flows*, as other processes would; each can be released."""
    leases = {flow: Lease(context.lake.root, f"replay {flow.name}") for flow in flows}
    for lease in leases.values():
        lease.acquire()
    try:
        yield leases
    finally:
        for lease in leases.values():
            lease.release()


def status(run):
    return health(run.metrics_state)[1]["status"]


def waits(run, *flows):
    def are_waiting():
        return all(run.metrics_state.loops[f"replay {flow}"].state == "waiting" for flow in flows)

    until(are_waiting, "it waits", WAIT_S)


def test_a_standby_waits_quietly_and_continues_where_the_other_process_ended(context, begun):
    write(context, b"a")
    run = standby(context)
    with held(context, EU, AP) as leases, running_loops(run, run._signals.stop):
        waits(run, EU, AP)
        assert (status(run), begun, shown(context, "eu-west")) == ("standby", [], [])
        assert context.status_file.read(f"replay {EU}") is None

        for lease in leases.values():
            lease.release()
        arrives(context, "eu-west", b"a")
        arrives(context, "ap-south", b"a")
        until(lambda: status(run) == "ok", "it is well", WAIT_S)


def test_a_standby_reports_that_it_waits_after_its_workers_have_started(context, monkeypatch):
    asked, begun = threading.Event(), threading.Event()

    def wait_started(_):
        asked.set()
        begun.wait(WAIT_S)

    monkeypatch.setattr(InlinePool, "wait_started", wait_started)
    run = standby(context)
    with held(context, EU, AP), running_loops(run, run._signals.stop):
        assert asked.wait(WAIT_S)
        assert status(run) != "standby"
        begun.set()
        waits(run, EU, AP)
        assert status(run) == "standby"


def test_a_standby_takes_over_only_flows_whose_process_has_ended(context, begun):
    write(context, b"a")
    run = standby(context)
    with held(context, EU, AP) as leases, running_loops(run, run._signals.stop):
        waits(run, EU, AP)
        leases[AP].release()

        arrives(context, "ap-south", b"a")

        waits(run, EU)
        assert shown(context, "eu-west") == []
        assert begun == [([AP], [])]


def test_heartbeats_start_with_their_flow_and_those_of_other_pairs_with_the_first_flow(
    context, begun
):
    write(context, b"a")
    hearts = tuple(HeartbeatConfig(flow, "heartbeats", 1.0, 1) for flow in (EU, AP, BACK))
    context.config = dataclasses.replace(context.config, heartbeats=hearts)
    run = standby(context)
    with held(context, EU, AP) as leases, running_loops(run, run._signals.stop):
        waits(run, EU, AP)
        leases[AP].release()
        arrives(context, "ap-south", b"a")
        leases[EU].release()
        arrives(context, "eu-west", b"a")

    assert begun == [([AP], [AP, BACK]), ([EU], [EU])]


def test_a_standby_that_ends_does_not_change_the_status_of_another_process(context):
    run = standby(context)
    with held(context, EU, AP):
        context.status_file.post(f"replay {EU}", "running", None, [])
        with running_loops(run, run._signals.stop):
            waits(run, EU, AP)

        assert context.status_file.read(f"replay {EU}")["state"] == "running"


def test_a_flow_whose_map_cannot_be_read_is_released_and_tried_again(context, monkeypatch):
    write(context, b"a")
    load_ends, was_free = FlowReplayer.load_ends, []

    def fails_once(self):
        if self.flow == EU and not was_free:
            raise LakeError("the disk is away")
        load_ends(self)

    class Other(Listener):
        def tick_failed(self, role, error):
            with Lease(context.lake.root, role):
                was_free.append(True)

    monkeypatch.setattr(FlowReplayer, "load_ends", fails_once)
    run = standby(context, listeners=[Other()])
    with running_loops(run, run._signals.stop):
        arrives(context, "eu-west", b"a")

    assert was_free == [True]


def test_a_second_run_without_standby_is_refused(context):
    with held(context, EU), pytest.raises(LeaseHeldError, match="replay us-east->eu-west"):
        Mirror(context.config).run()


def test_standby_cannot_be_combined_with_until_caught_up():
    result = command("run", "--standby", "--until-caught-up", code=2)

    assert "--until-caught-up" in result.output
