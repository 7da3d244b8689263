"""Naming rules by name: MirrorMaker 2's, and classes that a user wrote in Python."""

import sys
from dataclasses import dataclass

import pytest

from resources.config.replication_policy import POLICY_MEMBERS, create_policy
from schemas.config.flow import Flow
from schemas.errors.configuration import RefusedKeyError
from schemas.mm2.replication_policy import DefaultPolicy, IdentityPolicy

FLOW = Flow("A", "B")
HERE = __name__


@dataclass(frozen=True)
class Suffixed(DefaultPolicy):
    """`orders` of A is `orders-from-A`."""

    source_alias: str | None = None

    def remote_topic(self, source_alias, topic):
        return f"{topic}-from-{source_alias}"


class Poor:
    def __init__(self, separator, internal_separator, source_alias):
        pass

    def remote_topic(self, source_alias, topic):
        return topic


class Unsendable(Suffixed):
    def __reduce__(self):
        raise TypeError("it holds a socket")


def test_a_policy_needs_every_member_of_the_protocol():
    assert POLICY_MEMBERS == [
        "checkpoints_topic", "heartbeats_topic", "is_heartbeats_topic", "is_internal",
        "offset_syncs_topic", "remote_topic", "source_of", "upstream_topic",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("DefaultReplicationPolicy", DefaultPolicy("_", "_")),
        ("org.apache.kafka.connect.mirror.DefaultReplicationPolicy", DefaultPolicy("_", "_")),
        ("IdentityReplicationPolicy", IdentityPolicy("_", "_", "A")),
        (f"{HERE}:Suffixed", Suffixed("_", "_", "A")),
    ],
)
def test_a_policy_is_created_by_its_name(name, policy):
    assert create_policy(name, FLOW, "_", "_") == policy


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("acme.nowhere:Flat", r"cannot be imported: ModuleNotFoundError.*PYTHONPATH"),
        (f"{HERE}:Missing", r"cannot be imported: AttributeError"),
        (f"{HERE}:Poor", r"has no checkpoints_topic, heartbeats_topic, is_heartbeats_topic"),
        (f"{HERE}:Unsendable", r"cannot be created: TypeError: it holds a socket"),
        (f"{HERE}:Flow", r"cannot be created: TypeError: .*separator"),
    ],
)
def test_an_unusable_policy_class_is_refused_with_the_reason(path, why):
    with pytest.raises(
        RefusedKeyError, match=rf"replication.policy.class: {path} {why}"
    ) as refused:
        create_policy(path, FLOW, ".", ".")

    assert "\n" not in str(refused.value)


def test_the_module_of_a_policy_may_be_in_any_folder_of_pythons_path(tmp_path, monkeypatch):
    text = "from schemas.mm2.replication_policy import IdentityPolicy as Flat\n"
    (tmp_path / "acme_policies_of_a_test.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)

    policy = create_policy("acme_policies_of_a_test:Flat", FLOW, ".", ".")

    assert policy == IdentityPolicy(".", ".", "A")
    del sys.modules["acme_policies_of_a_test"]
