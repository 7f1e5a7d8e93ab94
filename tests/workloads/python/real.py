# SPDX-License-Identifier: Apache-2.0
"""Parts of real programs in one: an asyncio server with its clients, in the main thread, which also works with
json, re, dataclasses, sorting, decimals, contexts and exceptions; threads that take work from a queue; of the packages
PACKAGES those that are installed: requests to a Flask and a Django application, callbacks from numpy and pandas, models of
pydantic, runs of pytest. Prints "ready" and the packages' names, then runs until it is killed. SIGUSR2 makes faulthandler write the stack of the thread that gets it to standard output."""
import asyncio
import contextlib
import dataclasses
import decimal
import faulthandler
import functools
import importlib
import io
import itertools
import json
import logging
import os
import queue
import re
import signal
import string
import sys
import threading
import types

PACKAGES = ("django", "flask", "numpy", "pandas", "pydantic", "pytest")
TESTED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tested.py")


@dataclasses.dataclass(order=True)
class Order:
    number: int
    customer: str
    lines: list = dataclasses.field(default_factory=list)

    @functools.cached_property
    def total(self):
        return sum((line.price for line in self.lines), decimal.Decimal(0))


@dataclasses.dataclass
class Line:
    name: str
    price: decimal.Decimal


class Encoder(json.JSONEncoder):
    def default(self, value):
        if dataclasses.is_dataclass(value):
            return dataclasses.asdict(value)
        return str(value)


def parsed(pairs):
    return {key: decimal.Decimal(value) if key == "price" else value for key, value in pairs}


@contextlib.contextmanager
def logged(what):
    try:
        yield what.upper()
    except ValueError as error:
        str(error).format()


def orders():
    for number in itertools.count():
        yield Order(number, string.ascii_lowercase[number % 26], [Line(f"item {i}", decimal.Decimal(i) / 7) for i in range(3)])


own = threading.local()


def supply():
    """The thread's own: a generator runs in one thread at a time."""
    if not hasattr(own, "orders"):
        own.orders = orders()
    return own.orders


def json_round_trip():
    text = json.dumps(next(supply()), cls=Encoder, indent=1)
    return json.loads(text, object_pairs_hook=parsed)


def replaced(match):
    return functools.reduce(lambda left, right: right + left, match.group())


def texts():
    return re.sub(r"\w+", replaced, "the quick brown fox jumps over the lazy dog")


def sorted_orders():
    few = list(itertools.islice(supply(), 8))
    return sorted(few) and max(few, key=lambda order: order.total)


def failing():
    with logged("failing") as name:
        raise ValueError(name)


def flask_work(flask):
    app = flask.Flask("real")

    @app.before_request
    def before():
        flask.g.order = next(supply())

    @app.route("/orders/<int:number>")
    def order(number):
        return flask.jsonify(number=number, total=str(flask.g.order.total))

    @app.errorhandler(404)
    def missing(error):
        return flask.render_template_string("{% for c in 'none' %}{{ c|upper }}{% endfor %}"), 404

    client = app.test_client()
    return lambda: (client.get("/orders/7").get_json(), client.get("/nowhere").data)


def django_work(django):
    from django import conf, http, template, test, urls

    def order(request, number):
        page = template.Engine.get_default().from_string("{% for line in order.lines %}{{ line.name|upper }}{% endfor %}")
        return http.HttpResponse(page.render(template.Context({"order": next(supply())})))

    routes = types.ModuleType("routes")
    routes.urlpatterns = [urls.path("orders/<int:number>", order)]
    conf.settings.configure(ALLOWED_HOSTS=["*"], ROOT_URLCONF=routes, SECRET_KEY="none", LOGGING_CONFIG=None, TEMPLATES=[
        {"BACKEND": "django.template.backends.django.DjangoTemplates"}], MIDDLEWARE=["django.middleware.common.CommonMiddleware"])
    django.setup()
    logging.getLogger("django").addHandler(logging.NullHandler())
    client = test.Client()
    # Django refuses some work in a thread with a loop; requests of this client are none of it.
    return lambda: (client.get("/orders/7").content, client.get("/nowhere").status_code)


def numpy_work(numpy):
    def work():
        values = numpy.arange(12.0).reshape(3, 4)
        numpy.apply_along_axis(lambda row: sum(row) / len(row), 1, values)
        return numpy.vectorize(lambda x: x * 2 + 1)(values)
    return work


def pandas_work(pandas):
    def work():
        frame = pandas.DataFrame([{"customer": order.customer, "total": float(order.total)} for order in
                                  itertools.islice(supply(), 20)])
        return frame.groupby("customer")["total"].apply(lambda totals: sum(totals) / len(totals)).sort_index().to_dict()
    return work


def pydantic_work(pydantic):
    class Address(pydantic.BaseModel):
        street: str
        number: int

        def __init__(self, **values):
            super().__init__(**values)

    class Customer(pydantic.BaseModel):
        name: str
        addresses: "list[Address]" if sys.version_info >= (3, 9) else list

    def work():
        address = Address(street="Long Lane", number="7")
        customer = Customer(name="a", addresses=[address])
        try:
            Address(street=None, number="none")
        except pydantic.ValidationError as error:
            return customer, str(error)
    return work


def pytest_work(pytest):
    sys.dont_write_bytecode = True
    options = ["-q", "-c", os.devnull, "--capture=no", "-p", "no:cacheprovider", "-p", "no:faulthandler", TESTED]

    def work():
        # Dumps go to the descriptor. Signals at any instruction have made 3.12 lose the errno of a missing file (once in
        # some thousand stops: "[Errno 0]"), which pytest does not take for a missing one.
        with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(OSError):
            return pytest.main(options)
    return work


PARTS = [json_round_trip, texts, sorted_orders, failing]


async def answer(reader, writer):
    while line := await reader.readline():
        work = PARTS[line[0] % len(PARTS)]
        work()
        writer.write(line)
        await writer.drain()


async def ask(port, first):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for number in itertools.count(first):
        writer.write(bytes([32 + number % 64, 10]))
        await reader.readline()
        if number % 5 == 0:
            await asyncio.wait_for(asyncio.gather(asyncio.sleep(0), asyncio.sleep(0.0005)), 5)


def worker(tasks):
    while True:
        tasks.get()()


async def serve(tasks, packages):
    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    clients = [asyncio.ensure_future(ask(port, first)) for first in range(4)]
    print("ready", *packages, flush=True)
    while not any(client.done() for client in clients):
        tasks.put(json_round_trip)
        await asyncio.get_running_loop().run_in_executor(None, texts)
        await asyncio.sleep(0.001)
    clients[0].result()


def main():
    faulthandler.register(signal.SIGUSR2, file=sys.stdout, all_threads=False, chain=False)
    packages = []
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            PARTS.append(globals()[name + "_work"](importlib.import_module(name)))
            packages.append(name)
    tasks = queue.Queue()
    for _ in range(2):
        threading.Thread(target=worker, args=(tasks,), daemon=True).start()
    asyncio.run(serve(tasks, packages))


main()
