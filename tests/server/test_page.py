"""The page for people; the last test needs Chromium."""

import asyncio
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from tests.support.servers import require, require_module

require_module("aiohttp")

import aiohttp
import httpx
import pytest

from tests.server.conftest import Client, serving
from tests.support.schedules import eventually

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


def test_folders_and_segments_are_shown(client: Client) -> None:
    client.post("/v1/segments/logs/a%20<b>?create=true", content=b"one\n<script>alert(1)</script>\n")
    assert "logs/" in client.get("/").text
    folder = client.get("/?path=logs").text
    assert "a &lt;b&gt;" in folder
    assert "<b>" not in folder.replace("<b>logs", "")
    answer = client.get("/", params={"path": "logs/a <b>"})
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in answer.text
    assert "script-src 'self'" in answer.headers["content-security-policy"]
    assert ":tail?offset=30" in answer.text


def test_no_page_needs_another_host(client: Client) -> None:
    client.post("/v1/segments/a?create=true", content=b"one\n")
    for url in ("/", "/?path=a", "/docs", "/page.js", "/page.css", "/?path=none"):
        assert not re.findall(r"""(?:src|href|url)\s*[=(]\s*["']?(?:https?:)?//""", client.get(url).text), url


def test_what_goes_wrong_is_a_page(client: Client) -> None:
    for path, status in (("none", 404), ("../x", 400), ("x$header", 400)):
        answer = client.get("/", params={"path": path})
        assert (answer.status_code, answer.headers["content-type"]) == (status, "text/html; charset=utf-8")
    assert "/v1/streams/{path}:trim" in client.get("/docs").text


async def _watched(port: int, page: str, changes: list[Callable[[], object]], expected: list[str]) -> str:
    """The text of a page in a browser, once it has what each change of the segment should bring."""
    async with aiohttp.ClientSession() as session:
        async with session.put(f"http://127.0.0.1:{port}/json/new?{quote(page, safe='')}") as answer:
            socket_url = (await answer.json(content_type=None))["webSocketDebuggerUrl"]
        async with session.ws_connect(socket_url) as socket:
            for change, text in zip([lambda: None, *changes], expected, strict=True):
                await asyncio.to_thread(change)
                shown = ""
                while text not in shown:
                    asked = {"expression": "document.body.innerText", "returnByValue": True}
                    await socket.send_json({"id": 1, "method": "Runtime.evaluate", "params": asked})
                    shown = (await socket.receive_json())["result"]["result"].get("value", "")
                    await asyncio.sleep(0.1)
            return shown


@pytest.mark.slow
@pytest.mark.nightly
def test_the_last_lines_grow_in_a_browser(tmp_path: Path) -> None:
    if CHROMIUM is None:
        require("Chromium is not installed")
    with serving(f"{tmp_path}/store") as server:
        url = f"{server.url}/v1/segments/logs/a"
        httpx.post(f"{url}?create=true", content=b"first line\n").raise_for_status()
        profile = tmp_path / "profile"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--disable-sync"]
        command = [CHROMIUM, *options, f"--user-data-dir={profile}", "about:blank"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as browser:
            try:
                eventually((profile / "DevToolsActivePort").exists, process=browser)
                port = int((profile / "DevToolsActivePort").read_text().split()[0])
                changes = [lambda: httpx.post(url, content=b"<b>grown</b> line\n"), lambda: httpx.post(f"{url}:seal")]
                expected = ["live", "<b>grown</b> line", "sealed"]
                text = asyncio.run(_watched(port, f"{server.url}/?path=logs/a", changes, expected))
            finally:
                browser.terminate()
    assert "first line" in text
    assert text.index("first line") < text.index("<b>grown</b> line")
