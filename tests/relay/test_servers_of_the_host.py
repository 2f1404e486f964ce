"""MCP servers of a session on another machine: the tests of local ones, which must not see a difference."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from api.conftest import mark, session, tools  # noqa: F401
from api.test_approvals import (  # noqa: F401
    test_a_host_that_measures_the_time_itself,
    test_a_question_about_a_program_that_was_replaced_allows_nothing,
    test_accepted_call_runs_with_the_bytes_that_were_shown,
    test_approval_timeout_refuses,
    test_bad_definitions_say_what_is_wrong,
    test_dead_kernel_closes_the_question,
    test_interrupt_closes_the_question,
    test_large_result,
    test_loop_with_python_between,
    test_output_stands_before_the_question_it_led_to,
    test_refusal_that_is_not_caught_is_marked,
    test_rejected_call_does_not_run_and_raises,
    test_reset_keeps_the_servers,
    test_threads_are_asked_about_one_by_one,
    test_tool_error_and_a_server_that_dies,
    test_variables_come_from_the_host,
    test_waiting_for_a_person_does_not_count,
)
from api.test_progress import *  # noqa: F403
from api.test_server_requests import (  # noqa: F401
    era,
    opened,
    shared,
    test_a_slow_person_costs_the_call_no_time,
    test_kernels_and_sessions_that_end,
    test_the_call_is_cancelled,
    test_the_server_takes_it_back,
)
from api.test_server_sandboxes import define, test_hosts_that_are_denied  # noqa: F401
from cellgate_api import Client


@pytest.fixture(scope="module")
def client(relay: list[str]) -> Iterator[Client]:
    with Client(log_level=0, connect=relay) as c:
        yield c
