// SPDX-License-Identifier: Apache-2.0
/* profctl: the command-line client of profd. Everything it does goes through the HTTP API. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "agent/base/parse.h"
#include "tools/profctl/command.h"
#include "tools/profctl/generate.h"

static void print_command(const struct command *command, FILE *to)
{
	char head[128];

	(void)snprintf(head, sizeof(head), "  %s %s", command->name, command->usage);
	generate_entry(to, head, command->help);
}

static void print_help(void)
{
	(void)printf(
		"Usage: profctl [--url URL | --socket PATH] [--token-file FILE] [--tenant NAME]\n"
		"               [-o json|table|folded|pprof] COMMAND [OPTIONS] [ARGUMENTS]\n\n"
		"Begin with `profctl services` and `profctl top SERVICE`.\n"
		"`profctl doctor` says what does not work here, and the remedy.\n\n"
		"Commands:\n");
	for (size_t i = 0; i < command_count; i++)
		print_command(&commands[i], stdout);
	(void)printf("\nOptions:\n");
	generate_help();
	(void)printf("\nOptions of commands (profctl COMMAND --help explains those of one):\n");
	for (size_t i = 0; i < COMMAND_OPTIONS; i++)
		generate_option_help(NULL, &command_options[i]);
}

static int usage(const char *text, const char *what)
{
	(void)fprintf(stderr, "profctl: %s%s; see profctl --help\n", text, what);
	return EXIT_USAGE;
}

/* An option that getopt() did not take: @letter is what it returned, @command stands before it (""
 * = none). */
static int wrong_option(int letter, char **argv, const char *command)
{
	const char word[] = { '-', (char)optopt, '\0' };
	bool is_short = letter == '?' && optopt > ' ' && optopt < 0x7f;

	(void)fprintf(stderr, "profctl: %s %s; see profctl %s%s--help\n",
		      letter == ':' ? "a value is missing after" : "cannot take the option",
		      is_short ? word : argv[optind - 1], command, *command ? " " : "");
	return EXIT_USAGE;
}

static int parse_number(const char *name, const char *text, uint64_t max, uint32_t *ret)
{
	uint64_t value;

	if (parse_u64(text, 1, max, &value) < 0) {
		(void)fprintf(stderr, "profctl: --%s must be a whole number from 1 to %llu, got '%s'\n",
			      name, (unsigned long long)max, text);
		return -1;
	}
	*ret = (uint32_t)value;
	return 0;
}

static int check_share(const char *name, const char *text, double min, double max)
{
	char *end;
	double value = strtod(text, &end);

	if (*text && !*end && value >= min && value <= max)
		return 0;
	(void)fprintf(stderr, "profctl: --%s must be a number from %.7g to %.7g, got '%s'\n", name,
		      min, max, text);
	return -1;
}

/* Options that are texts, by letter. */
static const char **text_option(struct arguments *args, int letter)
{
	switch (letter) {
	case 'F':
		return &args->file_format;
	case 'v':
		return &args->value;
	case 's':
		return &args->service;
	case 'S':
		return &args->status;
	case 'b':
		return &args->baseline;
	case 'L':
		return &args->label;
	case 'T':
		return &args->tag;
	case 'D':
		return &args->description;
	case 'N':
		return &args->name;
	case 'R':
		return &args->role;
	case 'K':
		return &args->key_tenant;
	case 'B':
		return &args->from;
	case 'E':
		return &args->to;
	case 'W':
		return &args->watch;
	case 'H':
		return &args->webhook;
	case 'G':
		return &args->webhook_format;
	default:
		return NULL;
	}
}

static int set_option(struct arguments *args, int letter, const char *value)
{
	const char **text = text_option(args, letter);

	if (letter == 'T' && args->tag_count < TAGS_MAX)
		args->tags[args->tag_count++] = value;
	if (text) {
		*text = value;
		return 0;
	}
	switch (letter) {
	case 't':
		args->type = value;
		args->type_given = true;
		return 0;
	case 'd':
		return parse_number("duration", value, 3600, &args->duration_s);
	case 'r':
		args->rate_given = true;
		return parse_number("rate", value, 1000, &args->rate_hz);
	case 'n':
		args->top_given = true;
		return parse_number("top", value, 1000, &args->top);
	case 'f':
		args->follow = true;
		return 0;
	case 'w':
		return parse_number("wait", value, 3600, &args->wait_s);
	case 'y':
		args->system = true;
		return 0;
	case 'a':
		args->all = true;
		return 0;
	case 'O':
		args->once = true;
		return 0;
	case 'x':
		args->kernel_locks = true;
		return 0;
	case 'u':
		args->wakers = true;
		return 0;
	case 'z':
		args->raw_frames = true;
		return 0;
	case 'P':
		args->paths = true;
		return 0;
	case 'J':
		args->tasks = true;
		return 0;
	case 'C':
		args->children = true;
		return 0;
	case 'A':
		args->no_children = true;
		return 0;
	case 'i':
		return parse_number("interval", value, 60, &args->interval_s);
	case 'k':
		return parse_number("retention", value, 3650, &args->retention_days);
	case 'p':
		args->threshold = value;
		return check_share("threshold", value, 0, 100);
	case 'c':
		args->confidence = value;
		return check_share("confidence", value, 0.5, 0.99999);
	case 'l':
		return parse_number("limit", value, 100, &args->limit);
	default:
		return -1;
	}
}

static int parse_format(const char *text, enum output_format *ret)
{
	static const char *const words[] = { "table", "json", "folded", "pprof" };

	for (size_t i = 0; i < ARRAY_SIZE(words); i++)
		if (!strcmp(words[i], text)) {
			*ret = (enum output_format)i;
			return 0;
		}
	return usage("-o takes json, table, folded or pprof, not ", text);
}

/* The options of @command for getopt_long(); --help and --output are taken by all. */
static void list_options(const struct command *command, struct option longs[COMMAND_OPTIONS + 3],
			 char shorts[2 * COMMAND_OPTIONS + 9])
{
	/* Options may stand anywhere, but not among the words of a command to run. */
	size_t count = 0, at = (size_t)sprintf(shorts, "%s:o:h", command->max_args < 0 ? "+" : "");

	for (size_t i = 0; i < COMMAND_OPTIONS; i++) {
		bool value = command_options[i].value != NULL;

		if (!strchr(command->options, command_options[i].letter))
			continue;
		longs[count++] = (struct option){ command_options[i].name,
						  value ? required_argument : no_argument, NULL,
						  command_options[i].letter };
		shorts[at++] = command_options[i].letter;
		if (value)
			shorts[at++] = ':';
	}
	longs[count++] = (struct option){ "output", required_argument, NULL, 'o' };
	longs[count++] = (struct option){ "help", no_argument, NULL, 'h' };
	longs[count] = (struct option){ 0 };
	shorts[at] = '\0';
}

#define PARSE_HELP (-1) /* help was asked for and printed */

/* Options of one command; positional arguments are left in args. 0, PARSE_HELP or EXIT_USAGE. */
static int parse_command(const struct command *command, int argc, char **argv,
			 struct arguments *args)
{
	struct option longs[COMMAND_OPTIONS + 3];
	char shorts[2 * COMMAND_OPTIONS + 9];
	int letter, rc = 0;

	list_options(command, longs, shorts);
	optind = 0; /* glibc: start over, reading a leading '+' again */
	while (rc == 0 && (letter = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
		if (letter == 'h') {
			generate_command_help(command);
			return PARSE_HELP;
		}
		if (letter == '?' || letter == ':')
			rc = wrong_option(letter, argv, command->name);
		else if (letter == 'o')
			rc = parse_format(optarg, &args->format);
		else if (set_option(args, letter, optarg) < 0)
			rc = EXIT_USAGE;
	}
	if (rc)
		return rc;
	args->argc = argc - optind;
	args->argv = argv + optind;
	if (args->argc < command->min_args ||
	    (command->max_args >= 0 && args->argc > command->max_args)) {
		(void)fprintf(stderr, "profctl: %s; usage: profctl %s%s%s; see profctl %s --help\n",
			      args->argc < command->min_args ? "an argument is missing" : "too many arguments",
			      command->name, *command->usage ? " " : "", command->usage, command->name);
		return EXIT_USAGE;
	}
	if ((args->format == OUTPUT_FOLDED || args->format == OUTPUT_PPROF) &&
	    !strchr(command->options, COMMAND_RENDERS))
		return usage("-o folded and -o pprof are for profiles, not for ", command->name);
	return 0;
}

/* The command that the first one or two words name, and how many words that took. */
static const struct command *find_command(int argc, char **argv, int *ret_words)
{
	for (size_t i = 0; i < command_count; i++) {
		const char *space = strchr(commands[i].name, ' ');
		size_t len = space ? (size_t)(space - commands[i].name) : strlen(commands[i].name);

		if (strlen(argv[0]) != len || strncmp(argv[0], commands[i].name, len) ||
		    (space && (argc < 2 || strcmp(argv[1], space + 1))))
			continue;
		*ret_words = space ? 2 : 1;
		return &commands[i];
	}
	return NULL;
}

/* Prints the commands that begin with @word to @to (NULL = none is printed); false: there is none.
 */
static bool print_group(const char *word, FILE *to)
{
	size_t len = strlen(word);
	bool found = false;

	for (size_t i = 0; i < command_count; i++) {
		if (strncmp(commands[i].name, word, len) != 0 || commands[i].name[len] != ' ')
			continue;
		found = true;
		if (to)
			print_command(&commands[i], to);
	}
	return found;
}

/* The words name no command: perhaps the first of two, as `continuous` of `continuous start`. */
static int no_command(int argc, char **argv)
{
	if (argc > 1 && (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) &&
	    print_group(argv[0], stdout))
		return 0;
	if (!print_group(argv[0], NULL))
		return usage("unknown command ", argv[0]);
	(void)fprintf(stderr, "profctl: %s goes on with another word; see profctl %s --help\n",
		      argv[0], argv[0]);
	return EXIT_USAGE;
}

static int run(int argc, char **argv, struct client_options *connection, struct arguments *args)
{
	cleanup(client) struct client *client = NULL;
	const struct command *command;
	int words, rc;

	command = find_command(argc, argv, &words);
	if (!command)
		return no_command(argc, argv);
	rc = parse_command(command, argc - words + 1, argv + words - 1, args);
	if (rc)
		return rc == PARSE_HELP ? 0 : rc;
	connection->for_people = args->format == OUTPUT_TABLE;
	client = client_create(connection);
	if (!client)
		return 1;
	args->client = client;
	rc = command->run(args);
	return rc == 1 && client_was_refused(client) ? EXIT_USAGE : rc;
}

int main(int argc, char **argv)
{
	enum { URL = 0x100, SOCKET, TOKEN_FILE, TENANT, HELP, VERSION, GENERATE };
	static const struct option longs[] = {
		{ "url", required_argument, NULL, URL },
		{ "socket", required_argument, NULL, SOCKET },
		{ "token-file", required_argument, NULL, TOKEN_FILE },
		{ "tenant", required_argument, NULL, TENANT },
		{ "output", required_argument, NULL, 'o' },
		{ "help", no_argument, NULL, 'h' },
		{ "version", no_argument, NULL, VERSION },
		{ "generate", required_argument, NULL, GENERATE },
		{ 0 },
	};
	struct client_options connection = { 0 };
	struct arguments args = { .type = "cpu", .rate_hz = 99, .top = 20, .limit = 20 };
	int letter;

	opterr = 0;
	while ((letter = getopt_long(argc, argv, "+:o:h", longs, NULL)) != -1) {
		switch (letter) {
		case URL:
			connection.url = optarg;
			break;
		case SOCKET:
			connection.socket = optarg;
			break;
		case TOKEN_FILE:
			connection.token_file = optarg;
			break;
		case TENANT:
			connection.tenant = optarg;
			break;
		case 'o':
			if (parse_format(optarg, &args.format))
				return EXIT_USAGE;
			break;
		case 'h':
			print_help();
			return 0;
		case VERSION:
			(void)printf("profctl %s\n", PROFD_VERSION);
			return 0;
		case GENERATE:
			return generate(optarg) < 0 ? usage("--generate takes man, bash, zsh or fish, not ", optarg)
						    : 0;
		default:
			return wrong_option(letter, argv, "");
		}
	}
	if (connection.url && connection.socket)
		return usage("--url and --socket name two daemons: give one of them", "");
	if (optind == argc) {
		print_help();
		return EXIT_USAGE;
	}
	return run(argc - optind, argv + optind, &connection, &args);
}
