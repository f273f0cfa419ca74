/* Request lines taken apart, reply lines put together. */
#define _GNU_SOURCE
#include "peer.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>




char *args_parse(struct args *a, char *line)
{
	char *save, *command = strtok_r(line, " \t\r\n", &save), *word;

	a->n = 0;
	if (!command) {
		fail(EINVAL, "line", "empty");
		return NULL;
	}
	while ((word = strtok_r(NULL, " \t\r\n", &save))) {
		char *eq = strchr(word, '=');
		if (!eq || a->n == MAX_ARGS) {
			fail(EINVAL, word, eq ? "more than %d arguments" : "not of the form key=value", MAX_ARGS);
			return NULL;
		}
		*eq = 0;
		a->key[a->n] = word;
		a->val[a->n++] = eq + 1;
	}
	return command;
}

const char *arg(const struct args *a, const char *key, int *from)
{
	for (int i = from ? *from : 0; i < a->n; i++)
		if (!strcmp(a->key[i], key)) {
			if (from)
				*from = i + 1;
			return a->val[i];
		}
	return NULL;
}

bool parse_u64(const char *text, uint64_t *v)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*v = strtoull(text, &end, 0);
	return !errno && !*end;
}

bool arg_u64(const struct args *a, const char *key, uint64_t *v)
{
	const char *text = arg(a, key, NULL);

	if (!text || parse_u64(text, v))
		return true;
	fail(EINVAL, key, "not a number: %s", text);
	return false;
}

bool need_u64(const struct args *a, const char *key, uint64_t *v)
{
	if (arg(a, key, NULL))
		return arg_u64(a, key, v);
	fail(EINVAL, key, "missing");
	return false;
}

bool parse_gid(const char *text, union ibv_gid *gid)
{
	struct in_addr v4;

	if (inet_pton(AF_INET6, text, gid->raw) == 1)
		return true;
	if (inet_pton(AF_INET, text, &v4) == 1) {
		memset(gid->raw, 0, 10);
		memset(gid->raw + 10, 0xff, 2);
		memcpy(gid->raw + 12, &v4, 4);
		return true;
	}
	if (strlen(text) != 32)
		return false;
	for (int i = 0; i < 16; i++)
		if (sscanf(text + 2 * i, "%2hhx", &gid->raw[i]) != 1)
			return false;
	return true;
}

void reply(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	reply_vadd(format, ap);
	va_end(ap);
}

int fail(int error, const char *at, const char *format, ...)
{
	const char *name = strerrorname_np(error);
	va_list ap;

	reply_reset();
	reply("err errno=%d name=%s at=%s text=", error, name ? name : "?", at);
	va_start(ap, format);
	reply_vadd(format, ap);
	va_end(ap);
	return -1;
}

int fail_errno(const char *at)
{
	int error = errno ? errno : EIO; /* some verbs say NULL and nothing else */

	return fail(error, at, "%s", strerror(error));
}

uint64_t now_us(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000ull + t.tv_nsec / 1000;
}

bool expired(uint64_t deadline_us)
{
	return now_us() >= deadline_us;
}
