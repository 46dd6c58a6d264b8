"""Tracing tools that patch the stdlib's pool: their context arrives in a warm worker of ours.

With the real packages.  They patch `ThreadPoolExecutor.submit` and `Thread.start` of the whole
process, so each setting has an interpreter of its own.
"""

from __future__ import annotations

import importlib.util
import json

import pytest
from helpers import run_python

pytestmark = pytest.mark.timeout(60)

ORDERS = [
    "before the import",
    "after the import",
    "after the pool was made",
    "and taken back",
    "not at all",
]
TOOLS = {"opentelemetry": "opentelemetry.instrumentation.threading", "sentry": "sentry_sdk"}

# `here()` tells the span or scope that is active, `request(name)` makes one active
OPENTELEMETRY = """
def instrument():
    from opentelemetry.instrumentation.threading import ThreadingInstrumentor
    ThreadingInstrumentor().instrument()
def uninstrument():
    from opentelemetry.instrumentation.threading import ThreadingInstrumentor
    ThreadingInstrumentor().uninstrument()
def prepare():
    global here, request, note
    from opentelemetry import baggage, context, trace
    from opentelemetry.sdk.trace import TracerProvider
    trace.set_tracer_provider(TracerProvider())
    tracer = trace.get_tracer("test")
    def here():
        span = trace.get_current_span()
        return [getattr(span, "name", None), baggage.get_baggage("request")]
    @contextlib.contextmanager
    def request(name):
        with tracer.start_as_current_span(name):
            token = context.attach(baggage.set_baggage("request", name))
            yield
            context.detach(token)
    def note(value):
        context.attach(baggage.set_baggage("request", value))
"""
SENTRY = """
def instrument():
    import sentry_sdk
    from sentry_sdk.integrations.threading import ThreadingIntegration
    from sentry_sdk.transport import Transport
    class Nowhere(Transport):
        def capture_envelope(self, envelope):
            pass
    sentry_sdk.init(
        dsn="http://key@localhost/1", transport=Nowhere, default_integrations=False,
        integrations=[ThreadingIntegration(propagate_scope=True)], traces_sample_rate=1.0,
    )
def uninstrument():
    import sentry_sdk
    sentry_sdk.get_client().close()
    sentry_sdk.get_global_scope().set_client(None)
def prepare():
    global here, request, note
    import sentry_sdk
    def here():
        span = sentry_sdk.get_current_span()
        tags = sentry_sdk.get_isolation_scope()._tags
        return [getattr(span, "description", None), tags.get("request")]
    @contextlib.contextmanager
    def request(name):
        with sentry_sdk.isolation_scope() as scope:
            scope.set_tag("request", name)
            with sentry_sdk.start_transaction(name=name), sentry_sdk.start_span(name=name):
                yield
    def note(value):
        with sentry_sdk.new_scope():
            sentry_sdk.get_isolation_scope().set_tag("request", value)
"""
USE = """
import asyncio, concurrent.futures, contextlib, contextvars, json, sys, threading
kind, order, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
exec(sys.argv[4])
if order in ("before the import", "and taken back"):
    instrument()
from affinitypool import ThreadPoolExecutor, as_completed, wait
if order == "after the import":
    instrument()
if options.pop("initialised", False):
    options["initializer"] = int
pool = ThreadPoolExecutor(2, **options)
def warm():
    met = threading.Barrier(2)
    wait([pool.submit(met.wait) for _ in range(2)])
if kind == "warm":
    warm()
if order == "after the pool was made":
    instrument()
if order == "and taken back":
    uninstrument()
prepare()
"""
ARRIVES = """
async def in_a_loop():
    return await asyncio.get_running_loop().run_in_executor(pool, here)
def forms():
    return {
        "submit": pool.submit(here).result(),
        "try_submit": pool.try_submit(here).result(),
        "submit_many": pool.submit_many(lambda _: here(), [1])[0].result(),
        "map": next(pool.map(lambda _: here(), [1])),
        "buffered map": next(pool.map(lambda _: here(), [1], buffersize=1)),
        "wait": wait([pool.submit(here)]).done.pop().result(),
        "as_completed": next(as_completed([pool.submit(here)])).result(),
        "event loop": asyncio.run(in_a_loop()),
        "nested": pool.submit(lambda: pool.submit(here).result()).result(),
        "thread": in_a_thread(),
    }
def in_a_thread():
    found = []
    thread = threading.Thread(
        target=contextvars.copy_context().run,
        args=[lambda: found.append(pool.submit(here).result())],
    )
    thread.start()
    thread.join()
    return found[0]
found = []
for name in "ab":
    with request(name):
        found.append(forms())
        pool.submit(note, "left behind").result()
found.append({"outside": pool.submit(here).result()})
print(json.dumps(found))
"""


def run(tool: str, kind: str, order: str, code: str, **options: object) -> object:
    """Run the code in a process with the tool; return what it prints."""
    if not installed(TOOLS[tool]):
        pytest.skip(f"{TOOLS[tool]} is not installed: it is in the extra `test`")
    setting = OPENTELEMETRY if tool == "opentelemetry" else SENTRY
    done = run_python(
        USE + code, kind, order, json.dumps(options), setting, options=("-W", "ignore"), timeout=50
    )
    assert (done.returncode, done.stderr) == (0, ""), done
    return json.loads(done.stdout)


def all_arrived(found: object) -> bool:
    """Whether each form saw the request it was used in; a failed assert tells which did not."""
    first, second, last = found  # type: ignore[misc]
    for name, forms in ("a", first), ("b", second):
        assert {form for form, seen in forms.items() if seen != [name, name]} == set()
    assert last == {"outside": [None, None]}
    return True


def installed(module: str) -> bool:
    """Whether a module can be found, also if a package above it is missing."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("tool", TOOLS)
def test_the_submitters_span_arrives_in_a_warm_worker(tool, order):
    """OpenTelemetry's and Sentry's threading instrumentation, which patch the stdlib's `submit`,
    see their context arrive in a warm worker."""
    assert all_arrived(run(tool, "warm", order, ARRIVES))


@pytest.mark.parametrize("tool", TOOLS)
def test_it_arrives_in_a_pool_with_an_initializer_too(tool):
    """Neighbour: with the stdlib's pool it does."""
    assert all_arrived(run(tool, "warm", "before the import", ARRIVES, initialised=True))


STARTED = """
with request("starter"):
    warm()
found = [pool.submit(here).result() for _ in range(4)]
with request("a"):
    found += [pool.submit(here).result() for _ in range(4)]
    if options.get("propagate_context"):  # else it stays in the thread, as with the stdlib
        pool.submit(note, "left behind").result()
found += contextvars.Context().run(lambda: [pool.submit(here).result() for _ in range(4)])
print(json.dumps(found))
"""


@pytest.mark.parametrize(
    ("tool", "propagate"),
    [
        ("opentelemetry", True),
        ("opentelemetry", False),
        ("sentry", True),
        ("sentry", False),
    ],
)
def test_nobody_sees_the_span_of_whoever_started_the_worker(tool, propagate):
    """Neighbour: these tools give a thread the context of its starter, which is some request."""
    found = run(tool, "cold", "before the import", STARTED, propagate_context=propagate)
    active = ["a", "a"] if propagate else [None, None]
    assert found == [[None, None]] * 4 + [active] * 4 + [[None, None]] * 4


DIES = """
import gc, time, weakref
class Baggage:
    pass
def use():
    baggage = Baggage()
    died.append(weakref.ref(baggage))
    with request(baggage if tool == "opentelemetry" else "a"):
        if tool == "sentry":
            sentry_sdk.set_tag("baggage", baggage)
        warm()
died = []
tool = "sentry" if "sentry_sdk" in sys.modules else "opentelemetry"
if tool == "sentry":
    import sentry_sdk
use()
end = time.monotonic() + 2
while died[0]() is not None and time.monotonic() < end:
    gc.collect()
    pool.submit(int).result()
    time.sleep(0.01)
print(json.dumps(died[0]() is None))
"""


@pytest.mark.parametrize("tool", TOOLS)
def test_a_worker_does_not_keep_the_span_of_its_starter(tool):
    """Neighbour: when a future is done the pool keeps no reference to its context."""
    assert run(tool, "cold", "before the import", DIES) is True


PATCHED = """
from concurrent import futures
import affinitypool
if order == "patch, instrument":
    affinitypool.patch_stdlib()
    instrument()
else:
    instrument()
    affinitypool.patch_stdlib()
assert futures.ThreadPoolExecutor is ThreadPoolExecutor
pool = futures.ThreadPoolExecutor(2)
warm()
"""


@pytest.mark.parametrize("order", ["patch, instrument", "instrument, patch"])
@pytest.mark.parametrize("tool", TOOLS)
def test_it_arrives_where_our_pool_stands_in_for_the_stdlibs(tool, order):
    """Neighbour: then the tools patch our class itself."""
    assert all_arrived(run(tool, "cold", order, PATCHED + ARRIVES))


def test_our_class_is_whole_again_after_the_tool_has_gone():
    """Neighbour: what an instrumentation leaves behind when it is taken back."""
    code = (
        PATCHED
        + """
assert not pool._submits_directly()
uninstrument()
affinitypool.unpatch_stdlib()
print(json.dumps([pool._submits_directly(), list(pool.map(abs, [-1]))]))
"""
    )
    assert run("opentelemetry", "cold", "patch, instrument", code) == [True, [1]]
