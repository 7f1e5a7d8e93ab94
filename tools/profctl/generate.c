// SPDX-License-Identifier: Apache-2.0
#include "tools/profctl/generate.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "tools/profctl/command.h"

#define LINE_COLUMNS 80
#define ENTRY_COLUMN 28 /* where the text of a command or an option begins */

static const struct {
	const char *name, *value, *help;
} global_options[] = {
	{ "url", "URL", "address of the daemon (default: its Unix socket, else http://127.0.0.1:8088)" },
	{ "socket", "PATH", "Unix socket of the daemon" },
	{ "token-file", "FILE", "file that holds the API key or token (default: PROFD_TOKEN)" },
	{ "tenant", "NAME", "tenant to act for" },
	{ "output", "FORMAT", "table (default), json, folded or pprof" },
	{ "help", NULL, "print the commands and their options" },
	{ "version", NULL, "print the version" },
};

static const struct {
	const char *command, *does;
} examples[] = {
	{ "top nginx", "what nginx spends its CPU time on now; q ends it" },
	{ "record -- find /usr -name libc.so.6", "where the time of one command goes" },
	{ "start nginx --type offcpu --follow", "what nginx waits for" },
	{ "flamegraph ID page.html", "a profile as one page that needs no daemon" },
	{ "continuous start '*'", "every service from now on, also after restarts" },
	{ "compare BASE COMPARISON", "whether the second profile is slower, with the significance" },
};

/* Prints @head and @text in lines of at most LINE_COLUMNS, the text from @column on. */
static void print_wrapped(FILE *to, const char *head, int column, const char *text)
{
	int at = fprintf(to, "%s", head);

	if (at > 0 && at > column - 2) {
		(void)fputc('\n', to);
		at = 0;
	}
	at += fprintf(to, "%*s", column - at, "");
	while (*text) {
		int len = (int)strcspn(text, " ");

		if (at > column && at + 1 + len > LINE_COLUMNS)
			at = fprintf(to, "\n%*s", column, "") - 1;
		at += fprintf(to, "%s%.*s", at > column ? " " : "", len, text);
		text += len + (text[len] == ' ');
	}
	(void)fputc('\n', to);
}

void generate_entry(FILE *to, const char *head, const char *text)
{
	print_wrapped(to, head, ENTRY_COLUMN, text);
}

void generate_help(void)
{
	char head[64];

	for (size_t i = 0; i < ARRAY_SIZE(global_options); i++) {
		(void)snprintf(head, sizeof(head), "  --%s %s", global_options[i].name,
			       global_options[i].value ? global_options[i].value : "");
		generate_entry(stdout, head, global_options[i].help);
	}
}

/* The help of an option, in the words of one command where they differ. */
static const char *option_help(const struct command *command, const struct command_option *option)
{
	for (size_t i = 0; command && i < command_option_note_count; i++)
		if (command_option_notes[i].letter == option->letter &&
		    !strcmp(command_option_notes[i].command, command->name))
			return command_option_notes[i].help;
	return option->help;
}

void generate_option_help(const struct command *command, const struct command_option *option)
{
	char head[64];

	(void)snprintf(head, sizeof(head), "  -%c, --%s %s", option->letter, option->name,
		       option->value ? option->value : "");
	generate_entry(stdout, head, option_help(command, option));
}

static bool takes(const struct command *command, size_t option)
{
	return strchr(command->options, command_options[option].letter) != NULL;
}

void generate_command_help(const struct command *command)
{
	(void)printf("Usage: profctl %s%s%s%s\n\n", command->name,
		     *command->options ? " [OPTIONS]" : "", *command->usage ? " " : "", command->usage);
	print_wrapped(stdout, "", 0, command->help);
	(void)printf("\nExample: profctl %s\n", command->example);
	if (*command->options)
		(void)printf("\n");
	for (size_t i = 0; i < COMMAND_OPTIONS; i++)
		if (takes(command, i))
			generate_option_help(command, &command_options[i]);
	(void)printf("\n-o json prints the daemon's answer as it is.\n");
}

/* Text of a page: what troff would take for a request or a hyphen is escaped. */
static void man_text(const char *text)
{
	for (; *text; text++)
		if (*text == '-')
			(void)fputs("\\-", stdout);
		else if (*text == '\\')
			(void)fputs("\\e", stdout);
		else
			(void)putchar(*text);
}

static void man_command(const struct command *command)
{
	const char *comma = "";

	(void)printf(".TP\n.B %s\n", command->name);
	if (*command->usage) {
		(void)printf(".RI \"");
		man_text(command->usage);
		(void)printf("\"\n");
	}
	(void)printf(".br\n");
	man_text(command->help);
	(void)printf(".\n.br\nExample: ");
	man_text(command->example);
	(void)printf("\n");
	if (!*command->options)
		return;
	(void)printf(".br\nOptions: ");
	for (size_t i = 0; i < COMMAND_OPTIONS; i++)
		if (takes(command, i)) {
			(void)printf("%s\\-\\-%s", comma, command_options[i].name);
			comma = ", ";
		}
	(void)printf(".\n");
}

static void man_option(const struct command_option *option)
{
	(void)printf(".TP\n.BI \\-%c \", \" \\-\\-%s \" %s\"\n", option->letter, option->name,
		     option->value ? option->value : "");
	man_text(option->help);
	(void)printf(".\n");
}

static void man(void)
{
	(void)printf(
		".TH PROFCTL 1 \"\" \"profd %s\" \"User Commands\"\n.SH NAME\nprofctl \\- client of the "
		"profd continuous profiler\n.SH SYNOPSIS\n.B profctl\n[\\fIOPTIONS\\fR] "
		"\\fICOMMAND\\fR [\\fICOMMAND OPTIONS\\fR] [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n"
		"Starts, follows and reads profiles of the services on a host through the HTTP API of "
		"\\fBprofd\\fR(8).\nEvery command takes \\-\\-help and \\-o.\n.SH COMMANDS\n",
		PROFD_VERSION);
	for (size_t i = 0; i < command_count; i++)
		man_command(&commands[i]);
	(void)printf(".SH OPTIONS\n");
	for (size_t i = 0; i < ARRAY_SIZE(global_options); i++) {
		(void)printf(".TP\n.BI \\-\\-%s \" %s\"\n", global_options[i].name,
			     global_options[i].value ? global_options[i].value : "");
		man_text(global_options[i].help);
		(void)printf(".\n");
	}
	(void)printf(".SH COMMAND OPTIONS\n");
	for (size_t i = 0; i < COMMAND_OPTIONS; i++)
		man_option(&command_options[i]);
	(void)printf(".SH EXAMPLES\n");
	for (size_t i = 0; i < ARRAY_SIZE(examples); i++) {
		(void)printf(".TP\n.B profctl ");
		man_text(examples[i].command);
		(void)printf("\n");
		man_text(examples[i].does);
		(void)printf(".\n");
	}
	(void)printf(".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage. Of \\fBrecord\\fR: the "
		     "command's own, 128 and its signal "
		     "if one ended it, 1 if profctl failed, 2 for wrong usage. Of \\fBci\\fR: 0 not "
		     "regressed, 1 regressed, 2 wrong use or no daemon, 3 could not tell, 4 the "
		     "command failed.\n.SH ENVIRONMENT\n.TP\n.B PROFD_TOKEN\n"
		     "the API key or token, unless \\-\\-token\\-file is given.\n.TP\n.B NO_COLOR\n"
		     "no colours, also on a terminal.\n.SH SEE ALSO\n.BR profd (8)\n");
}

/* "baseline" of "baseline create". */
static int first_word_len(const struct command *command)
{
	const char *space = strchr(command->name, ' ');

	return space ? (int)(space - command->name) : (int)strlen(command->name);
}

static bool has_second_word(const struct command *command)
{
	return strchr(command->name, ' ') != NULL;
}

/* The first command of the table with this first word: words are listed once. */
static bool is_first_of_word(size_t index)
{
	int len = first_word_len(&commands[index]);

	for (size_t i = 0; i < index; i++)
		if (first_word_len(&commands[i]) == len &&
		    !strncmp(commands[i].name, commands[index].name, (size_t)len))
			return false;
	return true;
}

static void second_words(const struct command *first)
{
	int len = first_word_len(first);

	for (size_t i = 0; i < command_count; i++)
		if (has_second_word(&commands[i]) && !strncmp(commands[i].name, first->name, (size_t)len + 1))
			(void)printf("%s ", commands[i].name + len + 1);
}

static void bash(void)
{
	(void)printf(
		"# bash completion for profctl\n_profctl() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} command=\n"
		"\tfor word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n\t\tcase $word in -*) ;; *) "
		"command+=\"$word \" ;; esac\n\tdone\n\tcase $command in\n");
	for (size_t i = 0; i < command_count; i++) {
		(void)printf("\t\"%s \"*) COMPREPLY=($(compgen -W \"", commands[i].name);
		for (size_t k = 0; k < COMMAND_OPTIONS; k++)
			if (strchr(commands[i].options, command_options[k].letter))
				(void)printf("--%s ", command_options[k].name);
		(void)printf("\" -- \"$cur\")) ;;\n");
	}
	for (size_t i = 0; i < command_count; i++) {
		if (!has_second_word(&commands[i]) || !is_first_of_word(i))
			continue;
		(void)printf("\t\"%.*s \") COMPREPLY=($(compgen -W \"", first_word_len(&commands[i]),
			     commands[i].name);
		second_words(&commands[i]);
		(void)printf("\" -- \"$cur\")) ;;\n");
	}
	(void)printf("\t*) COMPREPLY=($(compgen -W \"");
	for (size_t i = 0; i < command_count; i++)
		if (is_first_of_word(i))
			(void)printf("%.*s ", first_word_len(&commands[i]), commands[i].name);
	for (size_t i = 0; i < ARRAY_SIZE(global_options); i++)
		(void)printf("--%s ", global_options[i].name);
	(void)printf("\" -- \"$cur\")) ;;\n\tesac\n}\ncomplete -F _profctl profctl\n");
}

/* Text between single quotes of a shell; zsh, fish and bash all take an apostrophe so. */
static void quoted(const char *text)
{
	for (; *text; text++)
		if (*text == '\'')
			(void)fputs("'\\''", stdout);
		else
			(void)putchar(*text);
}

static void zsh_option(const char *name, const char *help, const char *value)
{
	(void)printf("'--%s[", name);
	quoted(help);
	(void)printf("]%s%s'", value ? ":" : "", value ? value : "");
}

static void zsh_options(const struct command *command)
{
	for (size_t k = 0; k < COMMAND_OPTIONS; k++) {
		if (!strchr(command->options, command_options[k].letter))
			continue;
		(void)putchar(' ');
		zsh_option(command_options[k].name, command_options[k].help, command_options[k].value);
	}
	(void)printf(" '*:argument:_files'");
}

static void zsh(void)
{
	(void)printf("#compdef profctl\n_profctl() {\n\tlocal -a commands\n\tcommands=(\n");
	for (size_t i = 0; i < command_count; i++) {
		if (!is_first_of_word(i))
			continue;
		(void)printf("\t\t'%.*s:", first_word_len(&commands[i]), commands[i].name);
		quoted(commands[i].help);
		(void)printf("'\n");
	}
	(void)printf("\t)\n\t_arguments -C \\\n");
	for (size_t i = 0; i < ARRAY_SIZE(global_options); i++) {
		(void)printf("\t\t");
		zsh_option(global_options[i].name, global_options[i].help, global_options[i].value);
		(void)printf(" \\\n");
	}
	(void)printf("\t\t'1:command:->command' '*::argument:->argument'\n\tcase $state in\n"
		     "\tcommand) _describe command commands ;;\n\targument)\n"
		     "\t\tcase \"$words[1] $words[2]\" in\n");
	for (size_t i = 0; i < command_count; i++) {
		(void)printf("\t\t\"%s%s) %s_arguments", commands[i].name,
			     has_second_word(&commands[i]) ? "\"" : " \"*",
			     has_second_word(&commands[i]) ? "shift words; (( CURRENT-- )); " : "");
		zsh_options(&commands[i]);
		(void)printf(" ;;\n");
	}
	for (size_t i = 0; i < command_count; i++) {
		if (!has_second_word(&commands[i]) || !is_first_of_word(i))
			continue;
		(void)printf("\t\t\"%.*s \"*) compadd ", first_word_len(&commands[i]), commands[i].name);
		second_words(&commands[i]);
		(void)printf(";;\n");
	}
	(void)printf("\t\tesac ;;\n\tesac\n}\n_profctl \"$@\"\n");
}

static void fish_description(const char *help)
{
	(void)printf(" -d '");
	quoted(help);
	(void)printf("'\n");
}

static void fish_command(size_t index)
{
	const struct command *command = &commands[index];
	int len = first_word_len(command);
	char seen[256];

	if (is_first_of_word(index)) {
		(void)printf("complete -c profctl -n __fish_use_subcommand -f -a %.*s", len, command->name);
		fish_description(command->help);
	}
	(void)snprintf(seen, sizeof(seen), "__fish_seen_subcommand_from %.*s%s%s", len, command->name,
		       has_second_word(command) ? "; and __fish_seen_subcommand_from " : "",
		       has_second_word(command) ? command->name + len + 1 : "");
	if (has_second_word(command)) {
		(void)printf("complete -c profctl -n '__fish_seen_subcommand_from %.*s' -f -a %s", len,
			     command->name, command->name + len + 1);
		fish_description(command->help);
	}
	for (size_t k = 0; k < COMMAND_OPTIONS; k++) {
		if (!strchr(command->options, command_options[k].letter))
			continue;
		(void)printf("complete -c profctl -n '%s' -f -s %c -l %s%s", seen, command_options[k].letter,
			     command_options[k].name, command_options[k].value ? " -r" : "");
		fish_description(command_options[k].help);
	}
}

static void fish(void)
{
	(void)printf("# fish completion for profctl\n");
	for (size_t i = 0; i < ARRAY_SIZE(global_options); i++) {
		(void)printf("complete -c profctl -l %s%s", global_options[i].name,
			     global_options[i].value ? " -r" : "");
		fish_description(global_options[i].help);
	}
	for (size_t i = 0; i < command_count; i++)
		fish_command(i);
}

int generate(const char *what)
{
	static const struct {
		const char *word;
		void (*print)(void);
	} kinds[] = { { "man", man }, { "bash", bash }, { "zsh", zsh }, { "fish", fish } };

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (!strcmp(kinds[i].word, what)) {
			kinds[i].print();
			return 0;
		}
	return -EINVAL;
}
