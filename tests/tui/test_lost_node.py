"""`corvo top` with several addresses, while the node that it uses is killed and comes back."""

import re
from functools import partial
from pathlib import Path

import trio

from tests.cluster.nodes import as_initial, cluster_of, members_in
from tests.support.links import on_sockets
from tests.tui.terminals import Shell, shell, top, without_styles


@on_sockets
async def test_a_killed_node_is_named_and_the_screen_goes_on_with_another(tmp_path: Path) -> None:
    members = await members_in(tmp_path, ("a", "b", "c"))
    as_initial(members)
    urls = [f"127.0.0.1:{member.address[1]}" for member in members]
    async with cluster_of(members) as cluster:
        await cluster.start_all()
        await cluster.until(members[0], "POST", "/api/v1/enqueue", {"queue": "mail", "payload": {}})
        with shell() as terminal:
            see = partial(_see, terminal)
            terminal.resize(140, 40)
            terminal.run(*top(",".join(urls)))
            await see(r"3/3 nodes.*2/2 shards lead.*survives 1 loss")
            title = await see(r"127\.0\.0\.1:\d+ .*live")
            [used] = [member for member, url in zip(members, urls, strict=True) if url in title]

            used.kill()
            others = "|".join(url for url in urls if url not in title)
            await see(rf"(?:{others}) .*2/3 nodes.*survives 0 losses")
            await see(f"node {used.name} cannot be reached")
            terminal.type("3")
            await see(f"{used.name} away .*✗ away")
            terminal.type("1")
            await see("mail .*idle +1 ")

            await cluster.gone(used)
            await cluster.start(used)
            await see(r"3/3 nodes.*2/2 shards lead.*survives 1 loss")
            terminal.type("q")
            await see("rc=0")


async def _see(terminal: Shell, pattern: str) -> str:
    """Wait for lines with a text, which may have styles anywhere."""
    shown = ""
    while re.search(pattern, shown) is None:
        shown += without_styles(
            await trio.to_thread.run_sync(terminal.wait, r"[^\r\n]\x1b\[\d+;1H|rc=0")
        )
        shown = shown[-20_000:]
    return shown
