// SPDX-License-Identifier: Apache-2.0
#include "agent/collect/proc/program_name.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "agent/base/cleanup.h"
#include "agent/base/text.h"

#define WORD_MAX 96u /* bytes of one part of a name */

/* The arguments behind the interpreter, one after another. */
struct arguments {
	const char *at, *end;
};

/* ---- the table ------------------------------------------------------------------------------- */

/* How an interpreter or runtime finds its program among its arguments. Lists are words between
 * spaces, with a space on both sides. */
struct interpreter {
	const char *exe;	   /* pattern of the executable's base name, fnmatch(3) */
	const char *value_options; /* options whose value is the next argument */
	const char *code_options;  /* the program is text on the command line: no name in it */
	const char *module_option; /* the next argument is a module, NULL = none */
	const char *script_option; /* the next argument is the script, NULL = none */
};

static const struct interpreter interpreters[] = {
	{ "python*", " -W -X --check-hash-based-pycs ", " -c ", "-m", NULL },
	{ "pypy*", " -W -X ", " -c ", "-m", NULL },
	{ "node",
	  " -r --require --import --loader --experimental-loader -C --conditions --env-file ",
	  " -e --eval -p --print -pe ", NULL, NULL },
	{ "nodejs", " -r --require --import --loader -C --conditions --env-file ",
	  " -e --eval -p --print -pe ", NULL, NULL },
	{ "ruby*", " -I -r -E -C ", " -e ", NULL, "-S" },
	{ "perl*", " -I ", " -e -E ", NULL, NULL },
	{ "php", " -c -d -S -t -z ", " -r -R -B -E ", NULL, "-f" },
	{ "php[0-9]*", " -c -d -S -t -z ", " -r -R -B -E ", NULL, "-f" },
	{ "dotnet", " --runtimeconfig --depsfile --fx-version --roll-forward ", " ", NULL, "exec" },
	{ "mono*", " --config --runtime ", " ", NULL, NULL },
	{ "sh", " -o -O ", " -c ", NULL, NULL },
	{ "dash", " -o -O ", " -c ", NULL, NULL },
	{ "bash", " -o -O --rcfile --init-file ", " -c ", NULL, NULL },
	{ "java",
	  " -cp -classpath --class-path -p --module-path --add-modules --add-opens "
	  "--add-exports --add-reads --patch-module --upgrade-module-path ",
	  " ", NULL, NULL },
};

/* Programs that serve the application named by one of their arguments. */
enum application {
	APPLICATION_OPTION, /* the value of -A or --app */
	APPLICATION_OBJECT, /* module:object, or the last word if it is a module */
	APPLICATION_FOLDER, /* the working directory */
};

static const struct {
	const char *name;
	enum application application;
} launchers[] = {
	{ "gunicorn", APPLICATION_OBJECT },	  { "uvicorn", APPLICATION_OBJECT },
	{ "hypercorn", APPLICATION_OBJECT },	  { "daphne", APPLICATION_OBJECT },
	{ "waitress-serve", APPLICATION_OBJECT }, { "celery", APPLICATION_OPTION },
	{ "flask", APPLICATION_OPTION },	  { "puma", APPLICATION_FOLDER },
	{ "unicorn", APPLICATION_FOLDER },	  { "sidekiq", APPLICATION_FOLDER },
	{ "rails", APPLICATION_FOLDER },	  { "npm", APPLICATION_FOLDER },
	{ "yarn", APPLICATION_FOLDER },
};

/* Main classes of servers that are known by another name. */
static const struct {
	const char *class, *name;
} java_servers[] = {
	{ "org.apache.catalina.startup.Bootstrap", "tomcat" },
	{ "kafka.Kafka", "kafka" },
	{ "org.apache.zookeeper.server.quorum.QuorumPeerMain", "zookeeper" },
	{ "org.apache.cassandra.service.CassandraDaemon", "cassandra" },
	{ "org.elasticsearch.bootstrap.Elasticsearch", "elasticsearch" },
	{ "org.opensearch.bootstrap.OpenSearch", "opensearch" },
	{ "org.eclipse.jetty.start.Main", "jetty" },
};

/* System properties by which a Java program says its own name. */
static const char *const java_properties[] = { "-Dspring.application.name=", "-Dotel.service.name=",
					       "-Ddd.service=" };

/* Names of files that every second project has: the folder above says whose it is. */
static const char generic_files[] =
	" main app manage run server wsgi asgi __main__ __init__ index cli start entrypoint artisan "
	"console bootstrap launcher worker ";
static const char generic_folders[] = " . src bin app dist build lib scripts server public web ";
static const char generic_classes[] = " Main App Application Server Bootstrap Launcher Start ";
static const char multi_call[] = " busybox toybox coreutils ";

/* ---- words ----------------------------------------------------------------------------------- */

static bool listed(const char *list, const char *word, size_t len)
{
	for (const char *at = list; len > 0 && (at = strchr(at, ' ')) && at[1]; at++)
		if (strncmp(at + 1, word, len) == 0 && at[1 + len] == ' ')
			return true;
	return false;
}

static bool is_name_char(char c)
{
	return isalnum((unsigned char)c) || strchr("._+-@", c) != NULL;
}

/* Copies @text, cut to @size with its NUL. */
static void put(char *ret, size_t size, const char *text)
{
	size_t len = strnlen(text, size - 1);

	memcpy(ret, text, len);
	ret[len] = '\0';
}

static size_t name_len(const char *text)
{
	size_t len = 0;

	while (text[len] && is_name_char(text[len]))
		len++;
	return len;
}

/* The next argument into @ret, "" if it is longer than @size; false: there is none. */
static bool next(struct arguments *args, char *ret, size_t size)
{
	const char *end;
	size_t len;

	if (args->at >= args->end)
		return false;
	end = memchr(args->at, '\0', (size_t)(args->end - args->at));
	len = (size_t)((end ? end : args->end) - args->at);
	ret[0] = '\0';
	if (len < size) {
		memcpy(ret, args->at, len);
		ret[len] = '\0';
	}
	args->at += len + 1;
	return true;
}

#define ARGUMENT_SIZE 4097u

/* The folder that tells whose file @path is: the innermost one with a name of its own. */
static void folder_of(const char *path, const char *cwd, char ret[WORD_MAX])
{
	char whole[2 * ARGUMENT_SIZE];
	char *slash;

	(void)snprintf(whole, sizeof(whole), "%s%s%s", *path == '/' ? "" : cwd,
		       *path == '/' ? "" : "/", path);
	ret[0] = '\0';
	while ((slash = strrchr(whole, '/'))) {
		const char *folder;

		*slash = '\0';
		folder = text_file_name(whole);
		if (*folder && !listed(generic_folders, folder, strlen(folder)) &&
		    strcmp(folder, "..") != 0) {
			put(ret, WORD_MAX, folder);
			return;
		}
	}
}

/* ---- applications of launchers --------------------------------------------------------------- */

/* module, module.part or module:object, so that an address or a path is none. */
static bool is_module(const char *text, bool with_object)
{
	const char *colon = strchr(text, ':');
	size_t len =
		strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");

	if (!isalpha((unsigned char)text[0]) && text[0] != '_')
		return false;
	if (!with_object)
		return !text[len];
	return colon && text + len == colon &&
	       (isalpha((unsigned char)colon[1]) || colon[1] == '_') &&
	       name_len(colon + 1) == strlen(colon + 1);
}

static void application_object(struct arguments args, char ret[WORD_MAX])
{
	char word[ARGUMENT_SIZE], last[WORD_MAX] = "";
	bool after_option = false;

	ret[0] = '\0';
	while (next(&args, word, sizeof(word))) {
		if (is_module(word, true)) {
			put(ret, WORD_MAX, word);
			return;
		}
		if (word[0] != '-' && !after_option && is_module(word, false))
			put(last, sizeof(last), word);
		after_option = word[0] == '-' && !strchr(word, '=');
	}
	put(ret, WORD_MAX, last);
}

static void application_option(struct arguments args, char ret[WORD_MAX])
{
	char word[ARGUMENT_SIZE];

	ret[0] = '\0';
	while (next(&args, word, sizeof(word))) {
		const char *value = NULL;

		if (text_begins(word, "--app="))
			value = word + 6;
		else if ((!strcmp(word, "-A") || !strcmp(word, "--app")) &&
			 next(&args, word, sizeof(word)))
			value = word;
		if (value && (is_module(value, false) || is_module(value, true))) {
			put(ret, WORD_MAX, value);
			return;
		}
	}
}

/* @name with the application that the arguments behind it say; false: it is no launcher. */
static bool name_launcher(const char *name, struct arguments args, const char *cwd,
			  char ret[PROGRAM_NAME_SIZE])
{
	char application[WORD_MAX] = "";

	for (size_t i = 0; i < ARRAY_SIZE(launchers); i++) {
		if (strcmp(launchers[i].name, name) != 0)
			continue;
		if (launchers[i].application == APPLICATION_OBJECT)
			application_object(args, application);
		else if (launchers[i].application == APPLICATION_OPTION)
			application_option(args, application);
		else
			folder_of("x", cwd, application);
		(void)snprintf(ret, PROGRAM_NAME_SIZE, "%.*s%s%s", (int)WORD_MAX / 4, name,
			       *application ? " " : "", application);
		return true;
	}
	return false;
}

/* ---- scripts --------------------------------------------------------------------------------- */

/* node_modules/PACKAGE/… and node_modules/.bin/COMMAND: the package is the program. */
static bool name_package(const char *path, char ret[PROGRAM_NAME_SIZE])
{
	static const char folder[] = "node_modules/";
	const char *at = NULL, *found = path;
	size_t len;

	while ((found = strstr(found, folder)))
		at = found += strlen(folder);
	if (!at)
		return false;
	if (text_begins(at, ".bin/"))
		at += 5;
	len = strcspn(at, "/");
	if (at[0] == '@' && at[len])
		len += 1 + strcspn(at + len + 1, "/");
	(void)snprintf(ret, PROGRAM_NAME_SIZE, "%.*s", (int)len, at);
	return len > 0;
}

static void name_script(const char *path, struct arguments rest, const char *cwd,
			char ret[PROGRAM_NAME_SIZE])
{
	const char *base = text_file_name(path);
	size_t stem = strcspn(base, ".");
	char folder[WORD_MAX];

	if (name_launcher(base, rest, cwd, ret) || name_package(path, ret))
		return;
	if (listed(generic_files, base, stem)) {
		folder_of(path, cwd, folder);
		(void)snprintf(ret, PROGRAM_NAME_SIZE, "%s%s%.*s", folder, *folder ? "/" : "",
			       (int)WORD_MAX / 4, base);
		return;
	}
	put(ret, PROGRAM_NAME_SIZE, base);
}

/* A title that the program wrote over its arguments: "gunicorn: master [app:app]",
 * "puma 6.4 (tcp://…) [shop]", "[celeryd: …] -active- (-A proj worker)", "npm start". */
static void name_title(const char *title, const char *cwd, char ret[PROGRAM_NAME_SIZE])
{
	bool celery = text_begins(title, "[celeryd");
	char word[WORD_MAX], application[WORD_MAX] = "";
	const char *open;
	size_t len;

	if (celery) {
		const char *option = strstr(title, "-A ");

		len = option ? name_len(option + 3) : 0;
		(void)snprintf(ret, PROGRAM_NAME_SIZE, "celery%s%.*s", len ? " " : "", (int)len,
			       option ? option + 3 : "");
		return;
	}
	len = name_len(title);
	(void)snprintf(word, sizeof(word), "%.*s", (int)len, title);
	if (!name_launcher(word, (struct arguments){ 0 }, cwd, ret))
		put(ret, PROGRAM_NAME_SIZE, word);
	open = strrchr(title, '[');
	if (open && strcspn(open + 1, "]") < WORD_MAX)
		(void)snprintf(application, sizeof(application), "%.*s",
			       (int)strcspn(open + 1, "]"), open + 1);
	if (is_module(application, true) ||
	    (len && text_begins(title, "puma") && name_len(application) == strlen(application) &&
	     *application))
		(void)snprintf(ret, PROGRAM_NAME_SIZE, "%.*s %s", (int)WORD_MAX / 4, word,
			       application);
}

/* A descriptor (of `bash <(…)`, of an installer's pipe) has a number, not a name. */
static bool is_descriptor(const char *path)
{
	return text_begins(path, "/dev/") || text_begins(path, "/proc/");
}

static bool name_interpreted(const struct interpreter *how, struct arguments args, const char *cwd,
			     char ret[PROGRAM_NAME_SIZE])
{
	char word[ARGUMENT_SIZE];

	while (next(&args, word, sizeof(word))) {
		size_t len = strlen(word);
		bool module = how->module_option && !strcmp(word, how->module_option);

		if (module || (how->script_option && !strcmp(word, how->script_option))) {
			if (!next(&args, word, sizeof(word)))
				return false;
			if (!module)
				name_script(word, args, cwd, ret);
			else if (!name_launcher(word, args, cwd, ret))
				put(ret, PROGRAM_NAME_SIZE, word);
			return true;
		}
		if (listed(how->code_options, word, len))
			return false;
		if (listed(how->value_options, word, len)) {
			(void)!next(&args, word, sizeof(word));
			continue;
		}
		if (!strcmp(word, "--")) {
			if (!next(&args, word, sizeof(word)))
				return false;
		} else if (word[0] == '-' || !word[0]) {
			continue;
		}
		if (is_descriptor(word))
			return false;
		name_script(word, args, cwd, ret);
		return true;
	}
	return false;
}

/* ---- Java ------------------------------------------------------------------------------------ */

/* "petclinic" of "/srv/petclinic-3.1.0-SNAPSHOT.jar": a release is the same service. */
static void name_jar(const char *path, char ret[PROGRAM_NAME_SIZE])
{
	const char *base = text_file_name(path);
	size_t len = strlen(base);

	if (len > 4 && !strcmp(base + len - 4, ".jar"))
		len -= 4;
	for (size_t i = 1; i + 1 < len; i++)
		if (base[i] == '-' && isdigit((unsigned char)base[i + 1])) {
			len = i;
			break;
		}
	(void)snprintf(ret, PROGRAM_NAME_SIZE, "%.*s", (int)len, base);
}

static void name_class(const char *class, char ret[PROGRAM_NAME_SIZE])
{
	const char *slash = strrchr(class, '/'); /* module/class */
	const char *dot;

	class = slash ? slash + 1 : class;
	for (size_t i = 0; i < ARRAY_SIZE(java_servers); i++)
		if (!strcmp(java_servers[i].class, class)) {
			put(ret, PROGRAM_NAME_SIZE, java_servers[i].name);
			return;
		}
	dot = strrchr(class, '.');
	if (dot && listed(generic_classes, dot + 1, strlen(dot + 1)))
		dot = NULL;
	put(ret, PROGRAM_NAME_SIZE, dot ? dot + 1 : class);
}

static bool name_java(const struct interpreter *how, struct arguments args,
		      char ret[PROGRAM_NAME_SIZE])
{
	char word[ARGUMENT_SIZE];

	while (next(&args, word, sizeof(word))) {
		bool jar = !strcmp(word, "-jar"),
		     module = !strcmp(word, "-m") || !strcmp(word, "--module");

		for (size_t i = 0; i < ARRAY_SIZE(java_properties); i++) {
			size_t len = strlen(java_properties[i]);

			if (!strncmp(word, java_properties[i], len) && word[len]) {
				put(ret, PROGRAM_NAME_SIZE, word + len);
				return true;
			}
		}
		if (jar || module) {
			if (!next(&args, word, sizeof(word)))
				return false;
			if (jar)
				name_jar(word, ret);
			else
				name_class(word, ret);
			return true;
		}
		if (listed(how->value_options, word, strlen(word))) {
			(void)!next(&args, word, sizeof(word));
			continue;
		}
		if (word[0] && word[0] != '-' && word[0] != '@') {
			name_class(word, ret);
			return true;
		}
	}
	return false;
}

/* ---- native programs ------------------------------------------------------------------------- */

/* The name a program was started by, where its executable has another: a link to a file of another
 * name, or one of the programs in a multi-call binary. The kernel's own name of the main thread
 * must agree, since a program can write what it likes over its arguments. A file that is only in
 * memory has no other name ("memfd:sealed-1f2e" differs with each start). */
static void name_native(const struct program *program, const char *first, struct arguments rest,
			char ret[PROGRAM_NAME_SIZE])
{
	const char *exe = text_file_name(program->exe), *started;
	char word[ARGUMENT_SIZE], path[ARGUMENT_SIZE];
	size_t len = strlen(program->comm);

	(void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(first, " :"), first);
	started = text_file_name(path);
	if (*started == '-')
		started++;
	if (listed(multi_call, exe, strlen(exe)) && !strcmp(started, exe) &&
	    next(&rest, word, sizeof(word)) && word[0] != '-') {
		(void)snprintf(ret, PROGRAM_NAME_SIZE, "%.*s", (int)name_len(word), word);
		return;
	}
	if (*started && name_len(started) == strlen(started) && strcmp(started, exe) != 0 &&
	    (text_begins(program->exe, "/memfd:") ||
	     (len > 0 && !strncmp(started, program->comm, len) && (len == 15 || !started[len]))))
		put(ret, PROGRAM_NAME_SIZE, started);
}

static const struct interpreter *interpreter_of(const char *exe)
{
	for (size_t i = 0; i < ARRAY_SIZE(interpreters); i++)
		if (fnmatch(interpreters[i].exe, exe, 0) == 0)
			return &interpreters[i];
	return NULL;
}

void program_name(const struct program *program, char ret[PROGRAM_NAME_SIZE])
{
	struct arguments args = { program->args, program->args + program->args_len };
	const char *exe = text_file_name(program->exe);
	const struct interpreter *how = interpreter_of(exe);
	char first[ARGUMENT_SIZE] = "", name[PROGRAM_NAME_SIZE] = "";
	const char *started;

	ret[0] = '\0';
	if (!*exe || !next(&args, first, sizeof(first)))
		return;
	started = text_file_name(first);
	if (fnmatch("php-fpm*", exe, 0) == 0)
		put(name, sizeof(name), "php-fpm"); /* master and pools, every version */
	else if (!how)
		name_native(program, first, args, name);
	else if (strchr(first, ' ') && args.at >= args.end && strncmp(started, how->exe, 2) != 0)
		name_title(first, program->cwd, name);
	else if (!strcmp(how->exe, "java"))
		(void)name_java(how, args, name);
	else
		(void)name_interpreted(how, args, program->cwd, name);
	for (size_t i = 0; name[i]; i++)
		if (name[i] < 0x20 || name[i] > 0x7e)
			return;
	if (strcmp(name, exe) != 0)
		memcpy(ret, name, sizeof(name));
}
