// SPDX-License-Identifier: Apache-2.0
#include "tools/profctl/generate.h"

#include <errno.h>
#include <string.h>

#include "tools/profctl/command.h"

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

static void man(void)
{
	(void)printf(".TH PROFCTL 1 \"\" \"profd %s\" \"User Commands\"\n.SH NAME\nprofctl \\- client of the "
		     "profd continuous profiler\n.SH SYNOPSIS\n.B profctl\n[\\fIOPTIONS\\fR] "
		     "\\fICOMMAND\\fR [\\fICOMMAND OPTIONS\\fR] [\\fIARGUMENTS\\fR]\n.SH DESCRIPTION\n"
		     "Starts, follows and reads profiles of the services on a host through the HTTP API of "
		     "\\fBprofd\\fR(8).\n.SH COMMANDS\n",
		     PROFD_VERSION);
	for (size_t i = 0; i < command_count; i++)
		(void)printf(".TP\n.B %s\n.RI \"%s\"\n.br\n%s.\n", commands[i].name, commands[i].usage,
			     commands[i].help);
	(void)printf(".SH OPTIONS\n");
	for (size_t i = 0; i < ARRAY_SIZE(global_options); i++)
		(void)printf(".TP\n.BI \\-\\-%s \" %s\"\n%s.\n", global_options[i].name,
			     global_options[i].value ? global_options[i].value : "", global_options[i].help);
	(void)printf(".SH COMMAND OPTIONS\n");
	for (size_t i = 0; i < COMMAND_OPTIONS; i++)
		(void)printf(".TP\n.BI \\-%c \", \" \\-\\-%s \" %s\"\n%s.\n", command_options[i].letter,
			     command_options[i].name,
			     command_options[i].value ? command_options[i].value : "",
			     command_options[i].help);
	(void)printf(".SH EXIT STATUS\n0 done, 1 failed, 2 wrong usage.\n.SH SEE ALSO\n.BR profd (8)\n");
}

static void bash(void)
{
	(void)printf("# bash completion for profctl\n_profctl() {\n\tlocal cur=${COMP_WORDS[COMP_CWORD]} command=\n"
		     "\tfor word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n\t\tcase $word in -*) ;; *) "
		     "command=$word; break ;; esac\n\tdone\n\tcase $command in\n");
	for (size_t i = 0; i < command_count; i++) {
		(void)printf("\t%s) COMPREPLY=($(compgen -W \"", commands[i].name);
		for (size_t k = 0; k < COMMAND_OPTIONS; k++)
			if (strchr(commands[i].options, command_options[k].letter))
				(void)printf("--%s ", command_options[k].name);
		(void)printf("\" -- \"$cur\")) ;;\n");
	}
	(void)printf("\t*) COMPREPLY=($(compgen -W \"");
	for (size_t i = 0; i < command_count; i++)
		(void)printf("%s ", commands[i].name);
	for (size_t i = 0; i < ARRAY_SIZE(global_options); i++)
		(void)printf("--%s ", global_options[i].name);
	(void)printf("\" -- \"$cur\")) ;;\n\tesac\n}\ncomplete -F _profctl profctl\n");
}

/* Text inside single quotes of a shell: our help texts hold none. */
static void zsh(void)
{
	(void)printf("#compdef profctl\n_profctl() {\n\tlocal -a commands\n\tcommands=(\n");
	for (size_t i = 0; i < command_count; i++)
		(void)printf("\t\t'%s:%s'\n", commands[i].name, commands[i].help);
	(void)printf("\t)\n\t_arguments -C \\\n");
	for (size_t i = 0; i < ARRAY_SIZE(global_options); i++)
		(void)printf("\t\t'--%s[%s]%s%s' \\\n", global_options[i].name, global_options[i].help,
			     global_options[i].value ? ":" : "",
			     global_options[i].value ? global_options[i].value : "");
	(void)printf("\t\t'1:command:->command' '*::argument:->argument'\n\tcase $state in\n"
		     "\tcommand) _describe command commands ;;\n\targument)\n\t\tcase $words[1] in\n");
	for (size_t i = 0; i < command_count; i++) {
		(void)printf("\t\t%s) _arguments", commands[i].name);
		for (size_t k = 0; k < COMMAND_OPTIONS; k++)
			if (strchr(commands[i].options, command_options[k].letter))
				(void)printf(" '--%s[%s]%s%s'", command_options[k].name,
					     command_options[k].help,
					     command_options[k].value ? ":" : "",
					     command_options[k].value ? command_options[k].value : "");
		(void)printf(" ;;\n");
	}
	(void)printf("\t\tesac ;;\n\tesac\n}\n_profctl \"$@\"\n");
}

static void fish(void)
{
	(void)printf("# fish completion for profctl\n");
	for (size_t i = 0; i < ARRAY_SIZE(global_options); i++)
		(void)printf("complete -c profctl -l %s %s -d '%s'\n", global_options[i].name,
			     global_options[i].value ? "-r" : "", global_options[i].help);
	for (size_t i = 0; i < command_count; i++) {
		(void)printf("complete -c profctl -n __fish_use_subcommand -f -a %s -d '%s'\n",
			     commands[i].name, commands[i].help);
		for (size_t k = 0; k < COMMAND_OPTIONS; k++)
			if (strchr(commands[i].options, command_options[k].letter))
				(void)printf("complete -c profctl -n '__fish_seen_subcommand_from %s' -f "
					     "-s %c -l %s %s -d '%s'\n",
					     commands[i].name, command_options[k].letter,
					     command_options[k].name, command_options[k].value ? "-r" : "",
					     command_options[k].help);
	}
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
