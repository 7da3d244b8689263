"""Errors: the fields of their messages and hints, the calls that raise them, and pickling."""

import ast
import inspect
import pickle
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

import pytest

from schemas.errors.base import ConfigError, DeltamirrorError, template_fields
from schemas.errors.configuration import UnknownKeyError
from schemas.errors.environment import BrokerStartError, PermissionMissingError, UnreachableError
from schemas.errors.source import LogTruncatedError, RecordsExpiredError
from schemas.errors.target import BatchRejectedError, RecordRefusedError
from schemas.kafka.acl import Permission
from schemas.kafka.partition import TopicPartition

ORDERS = TopicPartition("orders", 0)
WRITE = Permission("Write", "topic", "orders")
PACKAGES = ("assets", "deltamirror", "demo", "pipeline", "resources", "schemas", "tests")


def error_classes() -> dict[str, type[DeltamirrorError]]:
    """Return all error classes of the product and the demo by name."""
    for package in ("schemas.errors", "demo"):
        for module in iter_modules(import_module(package).__path__):
            import_module(f"{package}.{module.name}")
    found, open_classes = {}, [DeltamirrorError]
    while open_classes:
        cls = open_classes.pop()
        found[cls.__name__] = cls
        open_classes += cls.__subclasses__()
    return found


ERRORS = error_classes()


def required_and_optional(cls: type[DeltamirrorError]) -> tuple[set[str], set[str]]:
    """Return the fields that a call of *cls* has to give, and those that it may omit."""
    annotated = {name for base in cls.__mro__ for name in inspect.get_annotations(base)}
    optional = {name for name in annotated if hasattr(cls, name)} - {"message"}
    templates = {*template_fields(cls.message), *template_fields(cls.hint)}
    return templates | annotated - optional - {"message"}, optional


def wrong_calls(source: str) -> Iterator[str]:
    """Yield each call of an error class whose arguments do not fit its fields."""
    for node in ast.walk(ast.parse(source)):
        cls = ERRORS.get(node.func.id) if isinstance(getattr(node, "func", 0), ast.Name) else None
        if cls is None or cls.__init__ is not DeltamirrorError.__init__:
            continue  # a constructor of its own is checked by mypy
        first = template_fields(cls.message)[: len(node.args)]
        given = [*first, *(keyword.arg for keyword in node.keywords)]
        required, optional = required_and_optional(cls)
        fits = required <= set(given) <= required | optional and len(given) == len(set(given))
        if not fits or len(first) != len(node.args) or len(node.args) > 1:
            yield f"line {node.lineno}: {cls.__name__} takes {sorted(required)}"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_call_of_an_error_class_gives_exactly_its_fields(package):
    # By import: in the wheel's test the packages are not in the tests' folder.
    folder = Path(next(iter(import_module(package).__path__)))
    paths = sorted(folder.rglob("*.py"))
    assert paths

    found = {str(path): list(wrong_calls(path.read_text())) for path in paths}

    assert {path: wrong for path, wrong in found.items() if wrong} == {}


@pytest.mark.parametrize(
    "call",
    [
        pytest.param("LeaseHeldError('replay')", id="a field is missing"),
        pytest.param("LeaseHeldError('replay', holder='x', role='y')", id="a field comes twice"),
        pytest.param("LeaseHeldError('replay', holder='x', pid=1)", id="a field is unknown"),
        pytest.param("LeaseHeldError('replay', 'x')", id="two are positional"),
        pytest.param("WorkerDiedError('x')", id="a text where the message has no field"),
        pytest.param("BrokerStartError('x', reason='y')", id="a field of the hint is missing"),
        pytest.param("BatchRejectedError('x')", id="an annotated field is missing"),
    ],
)
def test_a_call_that_does_not_give_exactly_the_fields_is_found(call):
    assert len(list(wrong_calls(f"raise {call} from None"))) == 1


@pytest.mark.parametrize("cls", ERRORS.values(), ids=ERRORS)
def test_no_field_hides_an_attribute_of_exceptions(cls):
    required, optional = required_and_optional(cls)

    assert (required | optional - {"hint"}) & {*dir(Exception), "kind", "hint", "message"} == set()


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        pytest.param(ConfigError("{no field}"), "{no field}", "", id="a free text"),
        pytest.param(
            RecordsExpiredError(ORDERS, wanted=10, low=20),
            "orders[0]: records [10, 20) expired on the source before they were staged",
            RecordsExpiredError.hint,
            id="a message with fields",
        ),
        pytest.param(
            BrokerStartError("east", log="/tmp/{x}", reason="no {port}"),
            "broker east did not start: no {port}",
            "Read the whole log in /tmp/{x}.",
            id="a hint with a field",
        ),
        pytest.param(
            UnknownKeyError("topic", hint="Did you mean {topics}?"),
            "topic is not a key of mm2.properties",
            "Did you mean {topics}?",
            id="a hint of its own",
        ),
    ],
)
def test_an_error_prints_its_fields_in_message_and_hint(error, message, hint):
    assert (str(error), error.hint) == (message, hint)


def test_fields_are_attributes():
    error = BatchRejectedError("too large", partitions={ORDERS: "too large"}, is_transient=True)

    assert (error.reason, error.is_transient) == ("too large", True)
    assert error.partitions == {ORDERS: "too large"}
    assert not BatchRejectedError("too large", partitions={}).is_transient


@pytest.mark.parametrize(
    "error",
    [
        pytest.param(
            UnreachableError("eu-west", servers="host:9092", reason="timed out"), id="of a cluster"
        ),
        pytest.param(
            RecordRefusedError(ORDERS, start=10, end=20, reason="too large"), id="of a partition"
        ),
        pytest.param(ConfigError("no"), id="a free text"),
        pytest.param(UnknownKeyError("topic", hint="Did you mean topics?"), id="a hint of its own"),
        pytest.param(
            BatchRejectedError("why", partitions={ORDERS: "too large"}), id="with partitions"
        ),
        pytest.param(LogTruncatedError(ORDERS, staged=10, end=4), id="with a constructor"),
        pytest.param(
            PermissionMissingError("eu-west", "write", WRITE), id="with two parent classes"
        ),
    ],
)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickled_error_is_equal_to_the_original(error, protocol):
    again = pickle.loads(pickle.dumps(error, protocol))

    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
