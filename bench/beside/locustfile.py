"""For Locust: users that call without a pause, CALLS calls in all, and read answers line by line.

Request ids with their TTFT in ms are written to OUT.
"""

import csv
import itertools
import os
import time
from pathlib import Path

import gevent
from locust import FastHttpUser, constant, events, task

CALLS = int(os.environ["CALLS"])
BODY = b'{"model":"mock","stream":true,"messages":[{"role":"user","content":"%b"}]}' % (b"hi " * 30)
numbers, rows = itertools.count(), []


class Caller(FastHttpUser):
    wait_time = constant(0)

    @task
    def call(self):
        number = next(numbers)
        if number >= CALLS:
            time.sleep(0.05)  # gevent's, as Locust has put in its place
            return
        headers = {"content-type": "application/json", "x-request-id": f"locust-{number}"}
        sent_ns, first_ns = time.monotonic_ns(), None
        with self.client.post(
            "/v1/chat/completions", data=BODY, headers=headers, stream=True, catch_response=True, name="chat"
        ) as response:
            while line := response.stream.readline(b"\n"):
                if first_ns is None and line.startswith(b"data: "):
                    first_ns = time.monotonic_ns()
            response.success()
        rows.append((f"locust-{number}", (first_ns - sent_ns) / 1e6))
        if len(rows) >= CALLS:
            gevent.spawn(self.environment.runner.quit)  # this user's own greenlet is among those that it ends


@events.quitting.add_listener
def write(**_):
    with Path(os.environ["OUT"]).open("w") as stream:
        csv.writer(stream).writerows(rows)
