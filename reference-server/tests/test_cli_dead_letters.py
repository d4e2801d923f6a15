"""`ah-server … dead …` against an admin door that a test scripts: pages, long work, refusals."""

import io
import json
import threading
from contextlib import contextmanager, redirect_stdout, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from servers import clean_environment

from ah_server.cli import _progress, main
from ah_server.cli._printing import print_mapping, print_rows

TOKEN = "admin-token-canary-0123456789"


class Door:
    """Notes requests and answers from a table of method and path."""

    def __init__(self):
        self.asked = []
        self.answers = {}

    def answer(self, method, path, token, body):
        self.asked.append((method, path, body))
        if token != f"Bearer {TOKEN}":
            return 401, {"code": "unauthorized", "message": "no"}
        found = self.answers[method, path.partition("?")[0]]
        return found(path) if callable(found) else (200, found)

    @contextmanager
    def served(self):
        door = self

        class Handler(BaseHTTPRequestHandler):
            def handle_any(self):
                size = int(self.headers.get("content-length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                status, found = door.answer(
                    self.command, self.path, self.headers.get("authorization"), body
                )
                text = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(text)))
                # A look at how far it is may be given up, when the work is done.
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.end_headers()
                    self.wfile.write(text)

            do_GET = do_POST = do_DELETE = handle_any  # noqa: N815 - what http.server calls

            def log_message(self, *_):
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield f"127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()


@pytest.fixture
def door():
    return Door()


@pytest.fixture
def cli(door, tmp_path, monkeypatch, capsys):
    clean_environment(monkeypatch)
    monkeypatch.setenv("AHC_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("AHC_ADMIN_TOKEN", TOKEN)

    def run(*arguments):
        with door.served() as listen:
            monkeypatch.setenv("AHC_ADMIN_LISTEN", listen)
            code = main(arguments)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def letters(numbers):
    return [
        {"letter_id": f"id-{n}", "reason": "rejected: no", "dead_at": "2026-11-30T10:00:00Z"}
        for n in numbers
    ]


@pytest.mark.parametrize("as_json", [False, True])
def test_all_pages_are_listed(cli, door, as_json):
    pages = {
        "": {"letters": letters(range(3)), "next_after": "id-2"},
        "id-2": {"letters": letters(range(3, 5)), "next_after": None},
    }
    door.answers["GET", "/admin/v1/outbox/dead"] = lambda path: (
        200,
        pages[path.partition("after=")[2]],
    )
    code, out, err = cli("outbox", "dead", "list", *(["--json"] if as_json else []))
    assert (code, err) == (0, "")
    if as_json:
        assert [one["letter_id"] for one in json.loads(out)] == [f"id-{n}" for n in range(5)]
    else:
        assert [line.split()[0] for line in out.splitlines()[1:]] == [f"id-{n}" for n in range(5)]


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        (
            ("replay", "--all"),
            ("POST", "/admin/v1/outbox/dead/replay", {"all": True}),
        ),
        (
            ("replay", "--id", "a", "--id", "b"),
            ("POST", "/admin/v1/outbox/dead/replay", {"ids": ["a", "b"]}),
        ),
        (("purge", "--all"), ("DELETE", "/admin/v1/outbox/dead", {"all": True})),
        (("purge", "--id", "a"), ("DELETE", "/admin/v1/outbox/dead", {"ids": ["a"]})),
    ],
)
def test_what_is_named_is_sent(cli, door, arguments, request_):
    method, path, _ = request_
    door.answers[method, path] = {"replayed": 2, "left": 1}
    code, out, err = cli("outbox", "dead", *arguments, "--json")
    assert (code, json.loads(out), err) == (0, {"replayed": 2, "left": 1}, "")
    assert door.asked == [request_]


@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_letters_that_are_not_there_are_told_so(cli, door, verb):
    path, done = "/admin/v1/worker/dead", {"replay": "replayed", "purge": "deleted"}[verb]
    method = "POST" if verb == "replay" else "DELETE"
    door.answers[method, f"{path}/replay" if verb == "replay" else path] = {done: 0, "left": 0}
    code, out, err = cli("worker", "dead", verb, "--id", "99999", "--id", "b")
    assert (code, out.split()) == (1, [done, "0", "left", "0"])
    assert "2 of the 2 letters that were named are not there (named: 99999, b);" in err
    assert "ah-server worker dead list" in err
    # One of them was there; or is, and cannot be read.
    for reply in ({done: 1, "left": 0}, {done: 0, "left": 1}):
        door.answers[method, f"{path}/replay" if verb == "replay" else path] = reply
        code, _, err = cli("worker", "dead", verb, "--id", "a", "--id", "b", "--id", "b")
        assert (code, "1 of the 2 letters that were named are not there" in err) == (1, True)
        assert cli("worker", "dead", verb, "--id", "a", "--id", "a")[::2] == (0, "")
    code, _, err = cli("worker", "dead", verb, "--all")
    assert (code, err) == (0, "")


@pytest.mark.parametrize("part", ["outbox", "bus", "worker"])
@pytest.mark.parametrize("verb", ["replay", "purge"])
def test_an_id_of_nothing_is_none(cli, door, part, verb):
    with pytest.raises(SystemExit) as ended:
        cli(part, "dead", verb, "--id", "")
    assert (ended.value.code, door.asked) == (2, [])


@given(reason=st.text(max_size=80))
@example("no such server\n\x1b[31m<b>\x9b\u202e\u2028\ud800")
def test_what_others_wrote_is_shown_in_one_line_and_drives_no_terminal(reason):
    row = {"letter_id": "a", "reason": f"rejected: {reason}", "dead_at": "now"}
    out = io.StringIO()
    with redirect_stdout(out):
        print_rows([row], columns=tuple(row), as_json=False, empty="")
        print_mapping({"reason": reason}, as_json=False)
    lines = out.getvalue().split("\n")
    assert len(lines) == 4
    assert all(line.isprintable() for line in lines)
    if reason.isprintable():
        assert f"rejected: {reason}" in lines[1]


def test_a_refusal_of_others_is_shown_so_too(cli, door):
    refusal = {"code": "unavailable", "message": "full\n\x1b[31m<b>"}
    door.answers["POST", "/admin/v1/outbox/dead/replay"] = lambda _path: (503, refusal)
    _, _, err = cli("outbox", "dead", "replay", "--all")
    assert err.count("\n") == 1
    assert "\x1b" not in err


@pytest.mark.parametrize("part", ["outbox", "bus", "worker"])
def test_long_work_is_waited_for_and_told_of(cli, door, monkeypatch, part):
    monkeypatch.setattr(_progress, "SECONDS", 0.05)
    looked = threading.Semaphore(0)
    left = iter(range(900, 0, -100))

    def stats(_path):
        looked.release()
        return 200, {"dead": next(left)}

    def replay(_path):
        for _ in range(3):
            looked.acquire(timeout=10 if part == "outbox" else 0.1)
        return 200, {"replayed": 900, "left": 0}

    door.answers["GET", "/admin/v1/outbox"] = stats
    door.answers["POST", f"/admin/v1/{part}/dead/replay"] = replay
    code, out, err = cli(part, "dead", "replay", "--all", "--json")
    assert (code, json.loads(out)) == (0, {"replayed": 900, "left": 0})
    lines = err.splitlines()
    assert len(lines) >= 2
    assert all(line.startswith(f"{part} dead replay: still at work") for line in lines)
    if part == "outbox":
        assert lines[:2] == [
            "outbox dead replay: still at work, 900 dead letters are left",
            "outbox dead replay: still at work, 800 dead letters are left",
        ]


def test_a_refusal_is_one_sentence_and_ends_with_3(cli, door):
    """As everything that a setting names and that cannot be used."""
    refusal = {"code": "unavailable", "message": "try later: the outbox is full"}
    door.answers["POST", "/admin/v1/outbox/dead/replay"] = lambda _path: (503, refusal)
    code, out, err = cli("outbox", "dead", "replay", "--all")
    assert (code, out) == (3, "")
    assert "the outbox is full" in err
    assert err.count("\n") == 1
    assert TOKEN not in err


def test_a_look_that_fails_does_not_end_the_work(cli, door, monkeypatch):
    monkeypatch.setattr(_progress, "SECONDS", 0.02)
    looked = threading.Event()

    def stats(_path):
        looked.set()
        return 503, {"code": "unavailable", "message": "no"}

    def purge(_path):
        looked.wait(10)
        return 200, {"deleted": 5, "left": 0}

    door.answers["GET", "/admin/v1/outbox"] = stats
    door.answers["DELETE", "/admin/v1/outbox/dead"] = purge
    code, out, err = cli("outbox", "dead", "purge", "--all")
    assert (code, err) == (0, "")
    assert out.split() == ["deleted", "5", "left", "0"]
