// SPDX-License-Identifier: Apache-2.0
/* The table of commands and of their options. */
#include "tools/profctl/command.h"

const struct command commands[] = {
	{ "status", "", "", 0, 0, "health, rates and cost of the daemon", command_status },
	{ "services", "", "", 0, 0, "services of this host and what uses its CPUs", command_services },
	{ "top", "[SERVICE]", "tdrn", 0, 1, "profile and print the top functions (default: whole host)",
	  command_top },
	{ "record", "-- COMMAND [ARG...]", "trn", 1, -1,
	  "run a command, profile it from start to end, print its top functions", command_record },
	{ "start", "SERVICE", "tdrfnw", 1, 1, "start a profile and print its id", command_start },
	{ "stop", "ID", "", 1, 1, "end a running profile early, or delete a finished one", command_stop },
	{ "get", "ID", "n", 1, 1, "a profile's state and top functions", command_get },
	{ "flamegraph", "ID [FILE]", "F", 1, 2, "write a profile in any format (default html)",
	  command_flamegraph },
	{ "history", "", "stSl", 0, 0, "profiles taken so far, newest first", command_history },
};
const size_t command_count = ARRAY_SIZE(commands);

const struct command_option command_options[COMMAND_OPTIONS] = {
	{ 't', "type", "TYPE", "cpu (default), offcpu, wall, block, mutex, memory, alloc, goroutine, io" },
	{ 'd', "duration", "SECONDS", "1 to 3600, default 30 (top: 5)" },
	{ 'r', "rate", "HZ", "samples per second, 1 to 1000, default 99" },
	{ 'n', "top", "N", "functions to print, default 20" },
	{ 'f', "follow", NULL, "wait for the result and print it" },
	{ 'w', "wait", "SECONDS", "wait so long for the service to appear" },
	{ 'F', "format", "FORMAT", "html svg json folded pprof firefox speedscope otlp perfscript callgrind csv" },
	{ 's', "service", "NAME", "only this service" },
	{ 'S', "status", "STATUS", "running, completed or failed" },
	{ 'l', "limit", "N", "entries, 1 to 100, default 20" },
};
