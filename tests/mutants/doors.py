"""Mistakes at the edges: access, protocols, and trust in files."""

from __future__ import annotations

from mutants.mutant import Mutant

WORKERS, MODEL = (f"daemon/localspec_daemon/supervisor/{name}.py" for name in ("workers", "model"))
LISTEN, WALL = "daemon/localspec_daemon/http/listen.py", "daemon/localspec_daemon/http/access.py"
POLICY, TRANSFER = "daemon/localspec_daemon/supervisor/restarts.py", "localspec/catalog/transfer.py"

DOORS = [
    Mutant(
        "workers: a process waits beside a worker",
        WORKERS,
        "if self._keeps_one and not self.living and not self.waiting:",
        "if self._keeps_one and not self.waiting:",
        ("daemon/test_waiting_process.py::test_one_process_waits_while_no_worker_lives",),
    ),
    Mutant(
        "workers: a daemon that ends leaves the process that waits",
        WORKERS,
        "        self._keeps_one = False\n        self._let_go()\n",
        "        self._keeps_one = False\n",
        ("daemon/test_waiting_process.py::test_one_process_waits_while_no_worker_lives",),
    ),
    Mutant(
        "model: a process that died while it waited is a crash",
        MODEL,
        "if worker.died_unheard and not again:",
        "if worker.died_unheard and again:",
        ("daemon/test_waiting_process.py::test_a_process_that_died_unheard_is_no_crash",),
    ),
    Mutant(
        "socket: other users may enter",
        LISTEN,
        "if self.family == socket.AF_UNIX and peer_uid(connection) != self.owner():",
        "if self.family == socket.AF_UNIX and peer_uid(connection) is None:",
        ("daemon/test_doors.py::test_another_user_is_turned_away_before_a_byte_is_read",),
    ),
    Mutant(
        "socket: it is not private from its first moment",
        LISTEN,
        "mask = os.umask(0o177)",
        "mask = os.umask(0o077)",
        ("daemon/test_doors.py::test_the_socket_is_private_before_it_listens_whatever_the_umask",),
    ),
    Mutant(
        "token: a file that a group could read is believed",
        LISTEN,
        "or status.st_mode & 0o077",
        "or status.st_mode & 0o007",
        ("daemon/test_doors.py::test_the_token_is_made_once_private_and_not_kept",),
    ),
    Mutant(
        "wall: web pages may speak",
        WALL,
        "if not visits and not allowed(request.headers, origins()):",
        "if not visits and not request.headers:",
        ("daemon/test_access.py::test_no_web_page_reaches_any_route_by_any_method",),
    ),
    Mutant(
        "wall: two Host headers pass",
        WALL,
        "if len(hosts) != 1 or hosts[0].lower() not in names:",
        "if hosts[0].lower() not in names:",
        ("daemon/test_access.py::test_two_hosts_or_none_are_refused",),
    ),
    Mutant(
        "wall: any token is right",
        WALL,
        "return bool(right) and all(right)",
        "return bool(right)",
        ("daemon/test_access.py::test_tcp_needs_the_token_and_the_right_host",),
    ),
    Mutant(
        "page: a cookie alone is enough",
        "daemon/localspec_daemon/page/passes.py",
        "return self.visits(cookies, headers) and _hash(key) in self._keys",
        "return self.visits(cookies, headers) and _hash(key) not in self._cookies",
        ("daemon/test_page.py::test_the_page_has_a_door_of_its_own_and_a_way_in",),
    ),
    Mutant(
        "frames: a length is believed",
        "localspec/wire/frames.py",
        "    if length > MAX_FRAME_BYTES:",
        "    if length > 1 << 40:",
        ("test_frames.py::test_a_length_over_the_cap_is_refused_before_anything_is_read",),
    ),
    Mutant(
        "ranges: nothing is too small",
        "localspec/ranges.py",
        "return self.low <= value <= self.high",
        "return value <= self.high",
        ("worker/test_limits.py::test_every_number_of_the_sampler_has_a_range",),
    ),
    Mutant(
        "ranges: stop strings are counted in characters",
        "localspec/ranges.py",
        "0 < len(stop.encode()) <= MAX_STOP_BYTES",
        "0 < len(stop) <= MAX_STOP_BYTES",
        ("test_ranges.py::test_stop_strings_are_counted_in_bytes_at_each_door",),
    ),
    Mutant(
        "limits: any drafter may be named",
        "localspec/worker/limits.py",
        "        if name not in drafters:",
        "        if name == drafters:",
        ("worker/test_limits.py::test_a_request_out_of_bounds_is_refused_with_its_field",),
    ),
    Mutant(
        "policy: three crashes are too many",
        POLICY,
        "if len(self.times) <= MAX_CRASHES_IN_WINDOW:",
        "if len(self.times) < MAX_CRASHES_IN_WINDOW:",
        (
            (
                "daemon/test_restarts.py::"
                "test_a_model_fails_exactly_when_more_than_three_crashes_are_within_a_minute"
            ),
        ),
    ),
    Mutant(
        "policy: a suspended machine's workers are killed",
        POLICY,
        "min(now - self.ticked_at, MAX_TICK_SECONDS)",
        "now - self.ticked_at",
        ("daemon/test_restarts.py::test_a_suspended_machine_condemns_nobody_at_wake_up",),
    ),
    Mutant(
        "policy: beats without steps are health",
        POLICY,
        "if beat.steps != self.steps or not beat.active:",
        "if beat.steps or not beat.active:",
        ("daemon/test_restarts.py::test_a_worker_that_beats_but_does_not_step_is_condemned",),
    ),
    Mutant(
        "pull: wrong bytes take the name",
        TRANSFER,
        "if self.entry.sha256 and found != self.entry.sha256:",
        "if not self.entry.sha256:",
        ("catalog/test_pull.py::test_wrong_bytes_never_take_the_name",),
    ),
    Mutant(
        "pull: bytes without end are taken",
        TRANSFER,
        "        if len(chunk) > self.missing_bytes:",
        "        if len(chunk) > self.missing_bytes + (1 << 40):",
        ("catalog/test_pull.py::test_too_many_bytes_are_refused",),
    ),
    Mutant(
        "header: a key may come twice",
        "localspec/catalog/reader.py",
        "        if key in metadata:",
        "        if key is None:",
        ("catalog/test_header.py::test_every_malformed_file_is_refused_with_a_sentence",),
    ),
    Mutant(
        "pairing: the first tokens speak for all",
        "localspec/catalog/pairing.py",
        "if ours[:shared] == theirs[:shared]:",
        "if ours[:8] == theirs[:8]:",
        ("catalog/test_pairing.py::test_the_first_token_that_differs_is_shown",),
    ),
    Mutant(
        "paths: a private directory is everybody's",
        "localspec/paths.py",
        "    directory.chmod(0o700)",
        "    directory.chmod(0o755)",
        ("test_paths.py::test_a_private_directory_is_the_users_alone",),
    ),
    Mutant(
        "client: any machine may be the daemon",
        "localspec/client.py",
        "        return config.tcp_address(address)",
        '        return address.partition(":")[0], 8080',
        ("test_client.py::test_a_host_that_is_not_this_machine_is_refused",),
    ),
]
