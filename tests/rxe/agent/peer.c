/* The verbs agent: libibverbs by remote control, in the guest or on any Linux machine with an RDMA device.
 *
 *   peer PORT      serves TCP connections; each has a process, and so all its verbs objects, of its own
 *
 * One request a line, one reply a line:
 *
 *   command key=value key=value...     numbers decimal or 0x; the commands and their keys: the table below
 *   ok key=value...                    handles (ctx, pd, buf, mr, mw, cq, srq, qp) are small numbers
 *   err errno=N name=ENOMEM at=CALL text=WORDS TO THE END OF THE LINE
 *
 * An error leaves the connection usable. When the connection ends, the kernel takes all its objects back.
 * For a person: `nc 127.0.0.1 PORT`, then `devices`. */
#define _GNU_SOURCE
#include "peer.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define KILL_US 30000000 /* what ending a process may take */

static char *out;
static size_t out_len, out_room;

void reply_reset(void)
{
	out_len = 0;
}

void reply_vadd(const char *format, va_list ap)
{
	va_list again;

	va_copy(again, ap);
	int n = vsnprintf(out + out_len, out_room - out_len, format, ap);
	if (n >= 0 && out_len + n >= out_room) {
		out_room = 2 * (out_len + n + 1);
		out = realloc(out, out_room);
		if (!out)
			abort(); /* ends this connection only */
		vsnprintf(out + out_len, out_room - out_len, format, again);
	}
	out_len += n > 0 ? n : 0;
	va_end(again);
}

static command cmd_help, cmd_pid, cmd_kill;
static const struct entry {
	const char *name, *keys; /* a key that is not listed is refused: a typing error must not pass as a default */
	command *run;
} commands[] = {
	{ "help", "", cmd_help },
	{ "pid", "", cmd_pid },
	{ "kill", "pid", cmd_kill },
	{ "devices", "", cmd_devices },
	{ "open", "dev", cmd_open },
	{ "query_device", "ctx", cmd_query_device },
	{ "query_port", "ctx", cmd_query_port },
	{ "gids", "ctx", cmd_gids },
	{ "counters", "dev", cmd_counters },
	{ "events", "ctx timeout_ms", cmd_events },
	{ "buf_alloc", "len shift seed", cmd_buf_alloc },
	{ "buf_fill", "buf off len seed at", cmd_buf_fill },
	{ "buf_verify", "buf off len seed at", cmd_buf_verify },
	{ "buf_read", "buf off len", cmd_buf_read },
	{ "buf_write", "buf off len hex", cmd_buf_write },
	{ "buf_crc", "buf off len", cmd_buf_crc },
	{ "buf_guard", "buf", cmd_buf_guard },
	{ "pd_alloc", "ctx", cmd_pd_alloc },
	{ "mr_reg", "pd buf off len access iova", cmd_mr_reg },
	{ "mr_rereg", "mr pd buf off len access", cmd_mr_rereg },
	{ "mw_alloc", "pd type", cmd_mw_alloc },
	{ "mw_bind", "qp id mw mr va len access", cmd_mw_bind },
	{ "cq_create", "ctx cqe channel", cmd_cq_create },
	{ "cq_resize", "cq cqe", cmd_cq_resize },
	{ "cq_poll", "cq n timeout_ms", cmd_cq_poll },
	{ "cq_arm", "cq solicited", cmd_cq_arm },
	{ "cq_wait", "cq timeout_ms", cmd_cq_wait },
	{ "srq_create", "pd max_wr max_sge", cmd_srq_create },
	{ "qp_create", "pd type scq rcq srq send_wr recv_wr send_sge recv_sge inline sig_all", cmd_qp_create },
	{ "qp_modify",
	  "qp state cur_state port pkey_index access qkey dgid sgid_index hop_limit traffic_class flow_label sl path_mtu dest_qpn"
	  " rq_psn sq_psn max_rd_atomic max_dest_rd_atomic min_rnr_timer timeout retry_cnt rnr_retry en_sqd_notify",
	  cmd_qp_modify },
	{ "qp_query", "qp", cmd_qp_query },
	{ "post_send", "qp id op flags sge ra rkey imm inv compare swap add mw mr va len access count stride", cmd_post_send },
	{ "post_recv", "qp srq id sge count stride", cmd_post_recv },
	{ "destroy", "h", cmd_destroy },
};
#define COMMANDS (sizeof commands / sizeof *commands)

static int cmd_help(const struct args *a)
{
	(void)a;
	for (size_t i = 0; i < COMMANDS; i++)
		reply(" %s(%s)", commands[i].name, commands[i].keys);
	return 0;
}

/* The process that holds the objects of this connection. */
static int cmd_pid(const struct args *a)
{
	(void)a;
	reply(" pid=%d", getpid());
	return 0;
}

/* SIGKILL: to another connection's process. It is gone, and the kernel has all its objects back, when this replies. */
static int cmd_kill(const struct args *a)
{
	uint64_t pid, deadline = now_us() + KILL_US;

	if (!need_u64(a, "pid", &pid))
		return -1;
	if (pid < 2 || pid > INT32_MAX || pid == (uint64_t)getpid())
		return fail(EINVAL, "pid", "not another process");
	if (kill(pid, SIGKILL))
		return fail_errno("kill");
	/* The listener ignores SIGCHLD, so that no zombie stays. */
	while (!kill(pid, 0)) {
		if (expired(deadline))
			return fail(ETIMEDOUT, "kill", "the process is still there");
		usleep(1000);
	}
	return 0;
}

static bool key_known(const char *keys, const char *key)
{
	size_t n = strlen(key);
	const char *at = keys;

	while (n && (at = strstr(at, key))) {
		if ((at == keys || at[-1] == ' ') && (!at[n] || at[n] == ' '))
			return true;
		at += n;
	}
	return false;
}

static void serve_line(char *line)
{
	struct args a;

	reply_reset();
	reply("ok");
	char *name = args_parse(&a, line);
	if (!name)
		return;
	for (size_t i = 0; i < COMMANDS; i++) {
		if (strcmp(commands[i].name, name))
			continue;
		for (int k = 0; k < a.n; k++)
			if (!key_known(commands[i].keys, a.key[k])) {
				fail(EINVAL, a.key[k], "%s takes: %s", name, commands[i].keys);
				return;
			}
		errno = 0;
		commands[i].run(&a);
		return;
	}
	fail(ENOSYS, name, "unknown command (help lists them)");
}

static void serve(int s)
{
	FILE *in = fdopen(s, "r");
	char *line = NULL;
	size_t room = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	out = malloc(out_room = 4096);
	while (in && out && getline(&line, &room, in) > 0) {
		serve_line(line);
		reply("\n");
		for (size_t done = 0; done < out_len;) {
			ssize_t n = write(s, out + done, out_len - done);
			if (n <= 0)
				_exit(0);
			done += n;
		}
	}
	_exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(argc > 1 ? atoi(argv[1]) : 0) };
	int one = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (argc != 2) {
		fprintf(stderr, "usage: peer PORT\n");
		return 2;
	}
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(l, (void *)&a, sizeof a) || listen(l, 64)) {
		perror("peer: listen");
		return 1;
	}
	signal(SIGCHLD, SIG_IGN);
	signal(SIGPIPE, SIG_IGN);
	for (;;) {
		int s = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		if (s < 0)
			continue;
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
		if (!fork())
			serve(s);
		close(s);
	}
}
