"""A mirrored world, and the JSON of every command about it: all of it is as it was recorded.

`tests/assets/test_json_errors.py` does the same for the configuration file and wrong usage.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
)

from tests.support.brokers import Record, commit_group, create_topic, produce
from tests.support.golden import Golden

pytestmark = [pytest.mark.kafka, pytest.mark.story]

FLOW = ("--flow", "us-east->eu-west")
T0 = 1_700_000_000_000
LATER = "2100-01-01T00:00:00Z"
FILE = """
clusters = us-east, eu-west
us-east.bootstrap.servers = {source}
eu-west.bootstrap.servers = {target}
us-east->eu-west.enabled = true
us-east->eu-west.topics = orders, audit, expiring
replication.factor = 1
tasks.max = 2
emit.heartbeats.enabled = false
emit.checkpoints.enabled = false
emit.offset-syncs.enabled = false
deltamirror.metrics.listen =
"""


def test_the_json_of_every_command_equals_the_golden_files(tmp_path, make_broker):
    with ThreadPoolExecutor() as starters:
        source, target = starters.map(make_broker, ("us-east", "eu-west"))
    golden = Golden(tmp_path / "mm2.properties")
    servers = {"source": source.bootstrap_servers, "target": target.bootstrap_servers}
    golden.config.write_text(FILE.format(**servers))
    fill(source.bootstrap_servers)

    before_anything_runs(golden)
    golden.start("run", "run", "--until-caught-up", given="orders[1] is paused")
    with_a_paused_partition(golden)
    change(source.bootstrap_servers)
    with_what_waits_for_an_operator(golden)
    golden.start("run", "run", "--until-caught-up")
    commit_group(
        source.bootstrap_servers, "billing", {("orders", 0): 4, ("orders", 1): 2, ("audit", 0): 8}
    )
    commit_group(
        target.bootstrap_servers,
        "billing",
        {("us-east.orders", 0): 0, ("us-east.orders", 1): 2},
    )
    when_all_is_mirrored(golden)
    replays(golden)
    other_tools(golden)
    golden.start("mm2", "import-mm2")
    golden.start("mm2", "export-mm2", *FLOW)
    golden.run("mm2", "status", given="handed back")
    copy_as_mirrormaker_2(source.bootstrap_servers, target.bootstrap_servers)
    golden.start("mm2", "import-mm2", *FLOW, given="orders[1] was copied on")
    damage(tmp_path / "lake", target.bootstrap_servers)
    when_records_differ(golden)
    target.kill()
    golden.run("unreachable", "status", given="the target is down")
    golden.run("unreachable", "plan", given="the target is down")

    golden.check()


def records(first, number, partition=0, key=b"k"):
    return [
        Record(key, b"value-%d" % i, [("n", b"%d" % i), ("empty", None)], T0 + 1000 * i, partition)
        for i in range(first, first + number)
    ]


def fill(bootstrap):
    """Write null keys, headers, committed and aborted transactions, and a topic to leave out."""
    for topic, partitions, configs in (
        ("orders", 2, {}),
        ("audit", 1, {"max_message_bytes": 2_000_000}),
        ("expiring", 1, {}),
        ("secret", 1, {}),
        ("eu-west.orders", 1, {}),
    ):
        create_topic(bootstrap, topic, partitions, **configs)
    # A group that is left out; the internal topic of groups is there from the beginning.
    commit_group(bootstrap, "console-consumer-1", {("orders", 0): 0})
    produce(bootstrap, "orders", records(0, 3, key=None))
    produce(bootstrap, "orders", records(3, 2), transactional_id="app")
    produce(bootstrap, "orders", records(90, 2), transactional_id="app", commit=False)
    produce(bootstrap, "orders", records(5, 2))
    produce(bootstrap, "orders", records(0, 4, partition=1))
    produce(bootstrap, "audit", records(0, 9))
    produce(bootstrap, "expiring", records(0, 2))


def change(bootstrap):
    """Delete records that are not staged, alter a setting, add a partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    produce(bootstrap, "expiring", records(2, 3))
    deleted = admin.delete_records([TopicPartition("expiring", 0, 5)])
    produce(bootstrap, "audit", records(9, 1))
    entry = ConfigEntry("retention.bytes", "12345678", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource("topic", "audit", incremental_configs=[entry])
    altered = admin.incremental_alter_configs([resource])
    added = admin.create_partitions([NewPartitions("orders", 3)])
    for futures in (deleted, altered, added):
        [future.result(30) for future in futures.values()]
    produce(bootstrap, "expiring", records(5, 1))


def before_anything_runs(golden):
    for command in ("plan", "status", "lag"):
        golden.run(command, command, given="nothing is staged")
    golden.run("pause", "pause", *FLOW, "--topic", "orders", "--partition", "1")
    golden.run("pause", "pause", *FLOW, "--topic", "orders", "--partition", "7")
    golden.run("pause", "pause", *FLOW, "--topic", "nothing")


def with_a_paused_partition(golden):
    for command in ("plan", "status", "lag"):
        golden.run(command, command, given="orders[1] is paused")


def with_what_waits_for_an_operator(golden):
    golden.run("plan", "plan", *FLOW, given="records of expiring are gone")
    golden.run("accept_gap", "accept-gap", "--cluster", "us-east", "--topic", "nothing")
    golden.run("accept_gap", "accept-gap", "--cluster", "us-east", "--topic", "expiring")
    golden.run("resume", "resume", *FLOW, "--topic", "orders", "--partition", "1")


def when_all_is_mirrored(golden):
    golden.run("groups_snapshot", "groups", "snapshot")
    golden.run("groups_snapshot", "groups", "snapshot", "--cluster", "us-east")
    for command in ("plan", "status", "lag"):
        golden.run(command, command, *FLOW)
    golden.run("gaps", "gaps")
    golden.run("gaps", "gaps", "--cluster", "us-east", "--topic", "expiring")
    golden.run("gaps", "gaps", "--topic", "nothing")
    for offset in (0, 4, 6, 8, 11, 100):
        at = ("--topic", "orders", "--partition", "0", "--offset", str(offset))
        golden.run("translate", "translate", *FLOW, *at)
    for topic, offset in (("orders", 3), ("us-east.orders", 4), ("us-east.orders", 100)):
        at = ("--topic", topic, "--partition", "0", "--offset", str(offset))
        golden.run("translate", "translate", *FLOW, *at, "--reverse")
    for topic, partition in (("orders", 2), ("orders", 9), ("secret", 0)):
        at = ("--topic", topic, "--partition", str(partition), "--offset", "0")
        golden.run("translate", "translate", *FLOW, *at)
    at = ("--topic", "orders", "--partition", "0", "--offset", "1")
    golden.run("translate", "translate", *FLOW, *at, "--incarnation", "another")
    for group in ("billing", "nobody"):
        for more in ((), ("--as-of", LATER), ("--as-of", "1")):
            golden.run("translate_group", "translate", *FLOW, "--group", group, *more)
            golden.run("groups_plan", "groups", "plan", *FLOW, "--group", group, *more)
    golden.run("groups_plan", "groups", "plan", *FLOW)
    golden.run("verify", "verify")
    golden.run("verify", "verify", "--staged", "--topic", "orders")
    golden.run("verify", "verify", "--topic", "nothing")
    golden.run("resume", "resume", *FLOW)
    golden.run("resume", "resume", *FLOW, "--topic", "nothing")


def replays(golden):
    for more in (
        (),
        ("--partition", "0"),
        ("--from-offset", "1", "--to-offset", "4"),
        ("--from-time", str(T0 + 1500), "--to-time", "2023-11-14T22:13:24Z"),
        ("--as-of", LATER),
        ("--as-of", "1"),
        ("--target-topic", "us-east.audit"),
    ):
        golden.run("replay", "replay", *FLOW, "--topic", "orders", *more, "--dry-run")
    golden.run("replay", "replay", *FLOW, "--topic", "nothing")
    audit = ("--topic", "audit", "--from-offset", "2", "--target-topic", "audit.again")
    golden.run("replay", "replay", *FLOW, *audit)
    golden.run("replay", "replay", *FLOW, *audit)


def other_tools(golden):
    golden.run("maintain", "maintain")
    golden.run("maintain", "maintain", "--rebuild-map", *FLOW)
    golden.run("maintain", "maintain", "--restage")


def copy_as_mirrormaker_2(source, target):
    """Write three records on both sides and note, as MirrorMaker 2 does, that they are copied."""
    for bootstrap, topic in ((source, "orders"), (target, "us-east.orders")):
        produce(bootstrap, topic, records(4, 3, partition=1))
    at = b'["MirrorSourceConnector",{"cluster":"us-east","partition":1,"topic":"orders"}]'
    # The last of the topic's 25 partitions: of two notes with one key it is read last.
    note = Record(at, b'{"offset":6}', partition=24)
    produce(target, "mm2-offsets.us-east.internal", [note])


def damage(lake, target):
    """Delete the staged files, write a record twice and one that is not ours."""
    folder = lake / "clusters" / "us-east" / "records"
    files = [f for f in folder.rglob("*.parquet") if "_delta_log" not in f.parts]
    assert files
    for file in files:
        file.unlink()
    produce(target, "us-east.orders", [*records(6, 1), Record(b"k", b"not ours")])


def when_records_differ(golden):
    golden.run("verify", "verify", given="no staged file is left")
    golden.run("maintain", "maintain", "--restage", given="no staged file is left")
    golden.run("verify", "verify", given="a record twice, and one that is not ours")
