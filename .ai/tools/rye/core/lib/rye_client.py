"""Calls of the daemon by a program that a run started.

    import rye_client

    lines = rye_client.execute("team/count", path="README.md")
    rye_client.progress(0.5, "half of the files")
    rules = rye_client.fetch("team/rules", item_type="knowledge")

Each call of an item is a run below the run of this program, with its permissions and from its budget. All functions may
be used by several threads at once. `from rye.tools.execute import ExecuteTool` gives the class of the original.
"""

__version__ = "1.0.0"
__tool_type__ = "library"
__tool_name__ = "rye_client"
__category__ = "rye/core/lib"
__tool_description__ = "Lets a Python tool call items, fetch items and report its progress."

import itertools
import json
import os
import subprocess
import threading

__all__ = ["CallError", "ExecuteTool", "call", "execute", "fetch", "progress"]


class CallError(Exception):
    """A call without a result. `code` is a word for programs, `envelope` the whole answer of an item that failed."""

    def __init__(self, code, message, envelope=None):
        super().__init__(message)
        self.code = code
        self.envelope = envelope


class Envelope(dict):
    """The answer of an item: `status` (`success` or `error`), `data`, `error`, `metadata`. It may be awaited."""

    def __await__(self):
        return self
        yield


class _Connection:
    """One `ryectl call`, which makes the calls of all threads."""

    def __init__(self):
        program = os.environ.get("RYE_CTL")
        if not program or not os.environ.get("RYE_TOKEN"):
            raise CallError("no_token", "this program may not call the daemon: it has no RYE_TOKEN, or there is no ryectl")
        self.process = subprocess.Popen([program, "call"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.ids = itertools.count()
        self.lock = threading.Lock()
        self.open = {}
        threading.Thread(target=self._read, daemon=True).start()

    def ask(self, request):
        number = next(self.ids)
        answered = threading.Event()
        slot = [answered, None]
        line = json.dumps({"id": number, **request}).encode() + b"\n"
        with self.lock:
            if self.open is None:
                raise CallError("unavailable", "the connection to the daemon is lost")
            self.open[number] = slot
            self.process.stdin.write(line)
            self.process.stdin.flush()
        answered.wait()
        answer = slot[1]
        if answer is None:
            raise CallError("unavailable", "the connection to the daemon was lost during the call")
        if "error" in answer:
            raise CallError(answer["error"]["code"], answer["error"]["message"])
        return answer["result"]

    def _read(self):
        for line in self.process.stdout:
            answer = json.loads(line)
            with self.lock:
                slot = self.open.pop(answer["id"], None)
            if slot:
                slot[1] = answer
                slot[0].set()
        with self.lock:
            left, self.open = self.open, None
        for slot in left.values():
            slot[0].set()


_made = threading.Lock()
_connection = None


def _ask(request):
    global _connection
    with _made:
        # A process that was forked has a connection of its own.
        if _connection is None or _connection[0] != os.getpid():
            _connection = (os.getpid(), _Connection())
        connection = _connection[1]
    try:
        return connection.ask(request)
    except BrokenPipeError:
        raise CallError("unavailable", "the connection to the daemon is lost") from None


def call(item_id, params=None, *, item_type="tool", idempotency_key=None):
    """Returns the whole envelope of an item. Raises `CallError` only if the call was not made."""
    request = {"call": "execute", "item_type": item_type, "item_id": item_id, "params": params or {}}
    if idempotency_key is not None:
        request["idempotency_key"] = idempotency_key
    return Envelope(_ask(request))


def execute(item_id, /, **params):
    """Returns the result of a tool or graph, or raises `CallError` with the code of its failure."""
    item_type, separator, name = item_id.rpartition(":")
    envelope = call(name, params, item_type=item_type if separator else "tool")
    if envelope["status"] != "success":
        code = envelope.get("metadata", {}).get("code", "error")
        raise CallError(code, envelope.get("error", "the item failed"), envelope)
    return envelope["data"]


def fetch(item_id=None, **options):
    """Returns an item by its id, or items by `query`. Options: item_type, query, scope, source, limit, offset."""
    if item_id is not None:
        options["item_id"] = item_id
    return _ask({"call": "fetch", **options})


def progress(fraction=None, message=""):
    """Records the progress of this program: a fraction from 0 to 1, and a message. At most one each second is kept."""
    return _ask({"call": "progress", "fraction": fraction, "message": message})["recorded"]


class ExecuteTool:
    """The interface of the original: `handle` returns an envelope, which may be awaited."""

    def __init__(self, user_space=None):
        self.user_space = user_space

    def handle(self, *, item_type, item_id, project_path=None, parameters=None, **options):
        return call(item_id, parameters, item_type=item_type, **options)
