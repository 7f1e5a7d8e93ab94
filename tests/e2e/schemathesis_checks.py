# SPDX-License-Identifier: Apache-2.0
"""Checks of our own inside schemathesis (loaded by it through SCHEMATHESIS_HOOKS)."""

import schemathesis

# Messages of protobuf are bytes like others here: what they hold is the fuzzers' business.
schemathesis.serializer.alias("application/x-protobuf", "application/octet-stream")

PROBLEM = {"type", "title", "status", "detail", "message", "error_code", "details"}


@schemathesis.check
def refusals_are_documents(ctx, response, case):
    """No answer says that something broke; what is refused for now says when to come back, and all say why."""
    status = response.status_code
    unimplemented = status == 501 and case.path.startswith("/querier.v1.")  # Connect's answer to a call that is not there
    assert status < 500 or status == 503 or unimplemented, f"{status}: {response.content[:300]!r}"
    if status in (429, 503) and case.path != "/readyz":
        assert response.headers.get("retry-after"), f"{status} without Retry-After"
    if status >= 400 and response.content and case.path != "/readyz" and not case.path.startswith("/v1development/"):
        members = set(response.json())
        due = {"message", "error_code", "details"} if case.path.startswith("/v0") else PROBLEM
        if case.path.startswith(("/querier.v1.", "/push.v1.")):
            due = {"code", "message"}
        assert members >= due, f"{status} has members {sorted(members)}"
