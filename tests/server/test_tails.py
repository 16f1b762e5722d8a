"""Following a segment over HTTP."""

import os
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import httpx
import pytest

from tests.server.conftest import Client, Process, talk
from tests.support.schedules import eventually

EVENTS = {"Accept": "text/event-stream"}


def test_long_poll_answers_whole_records_and_the_next_offset(client: Client) -> None:
    client.post("/v1/segments/a?create=true", content=b"one\ntwo\nthr")
    found = client.get("/v1/segments/a:tail?offset=0&wait=0")
    assert (found.content, found.headers["next-offset"][:2]) == (b"one\ntwo\n", "8-")
    found = client.get(f"/v1/segments/a:tail?offset={found.headers['next-offset']}&wait=0")
    assert (found.status_code, found.headers["next-offset"][:2]) == (204, "8-")
    client.post("/v1/segments/a", content=b"ee\n")
    assert client.get("/v1/segments/a:tail?offset=8&wait=0").content == b"three\n"
    assert client.get("/v1/segments/a:tail?offset=99&wait=0").status_code == 412
    client.post("/v1/segments/a", content=b"rest")
    client.post("/v1/segments/a:seal")
    last = client.get("/v1/segments/a:tail?offset=14&wait=60")
    assert (last.content, last.headers["segment-state"]) == (b"rest", "sealed")
    client.post("/v1/segments/a:truncate", json={"offset": 5})
    assert client.get("/v1/segments/a:tail?offset=0&wait=0").status_code == 410


def test_record_that_is_larger_than_answer_comes_whole(client: Client) -> None:
    client.post("/v1/segments/a?create=true", content=b"x" * 5000 + b"\n" + b"y" * 20_000 + b"\n")
    assert client.get("/v1/segments/a:tail?offset=0&wait=0&max_kib=1").content == b"x" * 5000 + b"\n"


def test_events_are_records_with_the_offset_behind_them(client: Client) -> None:
    client.post("/v1/segments/a?create=true", content=b"one\n\xff\ncarriage\rreturn\n\nend")
    client.post("/v1/segments/a:seal")
    text = client.get("/v1/segments/a:tail", headers={**EVENTS, "Last-Event-ID": "0"}).text
    events = [re.sub("(id: [0-9]+)-[0-9a-f]{8}", r"\1", event) for event in text.split("\n\n") if "data: " in event]
    assert events == [
        "id: 4\ndata: one",
        "event: base64\nid: 6\ndata: /w==",
        "event: base64\nid: 22\ndata: Y2FycmlhZ2UNcmV0dXJu",
        "id: 23\ndata: ",
        "id: 26\ndata: end",
        'event: end\nid: 26\ndata: {"length": 26}',
    ]


def test_clients_that_wait_are_woken(server: Process) -> None:
    url = f"{server.url}/v1/segments/a"
    httpx.put(url).raise_for_status()
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(httpx.get, f"{url}:tail?offset=0&wait=60", timeout=90) for _ in range(3)]
        eventually(lambda: "rollingfs_server_tails_running 3" in httpx.get(f"{server.url}/metrics").text)
        httpx.post(url, content=b"news\n").raise_for_status()
    assert [one.result().content for one in waiting] == [b"news\n"] * 3


def test_last_event_of_segment_that_is_deleted_is_problem(server: Process) -> None:
    url = f"{server.url}/v1/segments/deleted"
    httpx.post(f"{url}?create=true", content=b"one\n").raise_for_status()
    with httpx.stream("GET", f"{url}:tail?offset=0", headers=EVENTS, timeout=60) as answer:
        lines = answer.iter_lines()
        assert "data: one" in [next(lines) for _ in range(4)]
        httpx.delete(url).raise_for_status()
        assert "event: problem" in list(lines)


def read_on(url: str, spot: str, **headers: str) -> httpx.Response:
    return httpx.get(f"{url}:tail?offset={spot}&wait=0", headers=headers, timeout=60)


@pytest.mark.parametrize("way", ["written over", "renamed", "a plain file"])
def test_another_segments_offset_conflicts_without_half_records(server: Process, way: str) -> None:
    url, path = f"{server.url}/v1/segments/{way[:3]}", f"{server.root}/{way[:3]}"
    if way == "a plain file":
        Path(path).write_bytes(b"old 1\nold 2\n")
    else:
        httpx.post(f"{url}?create=true", content=b"old 1\nold 2\n").raise_for_status()
    spot = read_on(url, "0").headers["next-offset"]
    with httpx.stream("GET", f"{url}:tail?offset={spot}", headers=EVENTS, timeout=60) as answer:
        lines = answer.iter_lines()
        assert next(lines).startswith("retry")
        if way == "a plain file":
            os.replace(path, f"{path}.1")
            Path(path).write_bytes(b"new record 1\nnew record 2\n")
        elif way == "renamed":
            httpx.post(f"{url}:rename", json={"to": f"{way[:3]}.1"}).raise_for_status()
            httpx.post(f"{url}?create=true", content=b"new record 1\nnew record 2\n").raise_for_status()
        else:
            fsspec.filesystem("rolling+file").pipe_file(path, b"new record 1\nnew record 2\n")
        said = [line for line in lines if line]
    is_seen = said[0] == "event: problem" and way == "renamed"  # nothing had the name at that moment
    assert is_seen or (said[0], '"next": "0-' in said[1]) == ("event: replaced", True)
    for headers in ({}, EVENTS, {**EVENTS, "Last-Event-ID": spot}):
        refused = read_on(url, spot, **headers)
        assert (refused.status_code, refused.json()["title"]) == (409, "SegmentReplaced")
    begun = read_on(url, refused.headers["segment-replaced"])
    assert begun.content == b"new record 1\nnew record 2\n"
    again = httpx.get(f"{url}:tail?offset={spot}&wait=0&retry=true")
    assert (again.content, again.headers["segment-replaced"]) == (begun.content, refused.headers["segment-replaced"])


def test_events_go_on_in_the_next_segment_by_choice(server: Process) -> None:
    url = f"{server.url}/v1/segments/choice"
    httpx.post(f"{url}?create=true", content=b"one\n").raise_for_status()
    with httpx.stream("GET", f"{url}:tail?offset=0&retry=true", headers=EVENTS, timeout=60) as answer:
        lines = answer.iter_lines()
        assert "data: one" in [next(lines) for _ in range(4)]
        httpx.post(f"{url}:seal").raise_for_status()
        httpx.post(f"{url}:rename", json={"to": "choice.1"}).raise_for_status()
        httpx.post(f"{url}?create=true", content=b"two\n").raise_for_status()
        said = [next(line for line in lines if line and line[0] != ":") for _ in range(5)]
    assert (said[0], said[1][:6], said[3][:6], said[4]) == ("event: replaced", "id: 0-", "id: 4-", "data: two")


def test_a_long_poll_ends_when_its_client_goes(client: Client) -> None:
    client.put("/v1/segments/a")
    whole = {"type": "http.request", "body": b"", "more_body": False}
    sent = talk(client.app, "GET", "/v1/segments/a:tail", whole, b"wait=60")
    assert sent[0]["status"] == 400  # 204 if the minute had passed
    assert client.app.running["tails"] == 0
