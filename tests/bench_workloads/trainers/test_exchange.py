"""The line exchange between an attempt's ranks: only those with the attempt's token take part."""

import select
import selectors
import socket
import threading

import pytest

from bench_workloads.trainers.driver.exchange import MOST_UNPROVED, Exchange
from tests.support import simulated
from tests.support.driving import wait_for


def place(rank, port, token="secret", listener=None):
    fd = None if listener is None else listener.fileno()
    return simulated.place(rank, 3, master_port=port, master_listen_fd=fd, token=token)


@pytest.fixture
def hub():
    """Rank 0's end, whose loop runs in a thread; (its port, what it received)."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    selector = selectors.DefaultSelector()
    exchange = Exchange(place(0, port, listener=listener), selector)
    exchange.send({"early": 1})
    received, over = [], threading.Event()

    def loop():
        while not over.is_set():
            for key, _ in selector.select(0.02):
                received.extend(exchange.receive(key.fileobj))

    thread = threading.Thread(target=loop)
    thread.start()
    yield port, received
    over.set()
    thread.join()
    exchange.close()
    listener.close()


def messages(exchange, selector):
    return [message for key, _ in selector.select(0.5) for message in exchange.receive(key.fileobj)]


def test_ranks_with_the_token_exchange_lines(hub):
    port, received = hub
    loops = selectors.DefaultSelector(), selectors.DefaultSelector()
    ranks = [Exchange(place(rank, port), loop) for rank, loop in zip((1, 2), loops, strict=True)]
    ranks[0].send({"loss": 2.5})
    wait_for(lambda: {"loss": 2.5} in received)
    found = []
    wait_for(lambda: found.extend(messages(ranks[1], loops[1])) or {"loss": 2.5} in found)
    assert found == [{"early": 1}, {"loss": 2.5}]
    for rank in ranks:
        rank.close()


@pytest.mark.parametrize(
    "first",
    [
        *(
            b'{"token": "wrong"}\n',
            b'{"token": ["secret"]}\n',
            b'{"loss": 0.0}\n',
            b"GET / HTTP/1.1\r\n\r\n",
            b"x" * 5000,
        ),
        *(b'{"token":"\\ud800"}\n', b"[" * 60_000 + b"\n", b"secret", b"secretly\n", b"\xff" * 7, b"9" * 5000 + b"\n"),
    ],
)
def test_a_stranger_is_disconnected_and_gets_and_changes_nothing(hub, first):
    port, received = hub
    with socket.create_connection(("127.0.0.1", port), timeout=5) as stranger:
        stranger.sendall(first + b'{"loss": 0.0}\n' + b"x" * 5000)
        answer = b""
        try:
            while data := stranger.recv(1000):
                answer += data
        except ConnectionResetError:
            pass
    assert answer == b""
    assert received == []


def test_strangers_that_stay_connected_keep_no_rank_away(hub):
    port, _ = hub
    strangers = [socket.create_connection(("127.0.0.1", port), timeout=5) for _ in range(3 * MOST_UNPROVED)]
    rank = Exchange(place(1, port), selectors.DefaultSelector())
    wait_for(lambda: len(select.select(strangers, [], [], 0)[0]) >= 2 * MOST_UNPROVED)  # closed: nothing is sent
    rank.close()
    for stranger in strangers:
        stranger.close()


def test_a_rank_that_sends_nothing_gets_nothing(hub):
    port, _ = hub
    with socket.create_connection(("127.0.0.1", port), timeout=0.5) as stranger, pytest.raises(TimeoutError):
        stranger.recv(1000)
