/* Remote command agent for the rxe guest, and its client, in one file.
 *
 *   remote -s PORT                server (in the guest): one child per connection
 *   remote [-i] HOST PORT CMD...  client: runs CMD, streams stdout and stderr,
 *                                exits with CMD's status (128+n: died of signal n;
 *                                125: no connection or connection lost)
 *
 * One argument is handed to "sh -c"; several are executed as they are.
 * -i forwards standard input (else CMD reads /dev/null).
 * When the client goes away, CMD's process group is killed.
 *
 * Frames: 1 byte type, 4 bytes length (big endian), payload.
 *   to the server: R (argv, each NUL-ended), I (stdin), E (end of stdin)
 *   to the client: 1 (stdout), 2 (stderr), X (4 bytes: status, big endian)
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAXF (1 << 20)

static int wr(int fd, const void *b, size_t n)
{
	const char *p = b;
	while (n) {
		ssize_t r = write(fd, p, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return -1;
		p += r, n -= r;
	}
	return 0;
}

static int rd(int fd, void *b, size_t n)
{
	char *p = b;
	while (n) {
		ssize_t r = read(fd, p, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return -1;
		p += r, n -= r;
	}
	return 0;
}

static int put(int fd, char t, const void *b, uint32_t n)
{
	char h[5] = { t };
	uint32_t be = htonl(n);
	memcpy(h + 1, &be, 4);
	return wr(fd, h, 5) || wr(fd, b, n) ? -1 : 0;
}

/* Returns the type, or -1; *n is the payload's length (b holds MAXF + 1). */
static int get(int fd, char *b, uint32_t *n)
{
	unsigned char h[5];
	if (rd(fd, h, 5))
		return -1;
	memcpy(n, h + 1, 4);
	*n = ntohl(*n);
	if (*n > MAXF || rd(fd, b, *n))
		return -1;
	b[*n] = 0;
	return h[0];
}

static void serve(int s)
{
	static char b[MAXF + 1];
	char *argv[1024];
	uint32_t n;
	int ac = 0, in[2], out[2], err[2], st = 0, alive = 1, ended = 0;

	if (get(s, b, &n) != 'R')
		_exit(1);
	for (char *p = b; p < b + n && ac < 1000; p += strlen(p) + 1)
		argv[ac++] = p;
	if (!ac)
		_exit(1);
	if (ac == 1)
		argv[2] = argv[0], argv[0] = "sh", argv[1] = "-c", ac = 3;
	argv[ac] = NULL;
	if (pipe2(in, O_CLOEXEC) || pipe2(out, O_CLOEXEC) || pipe2(err, O_CLOEXEC))
		_exit(1);
	pid_t pid = fork();
	if (!pid) {
		setsid();
		dup2(in[0], 0), dup2(out[1], 1), dup2(err[1], 2);
		signal(SIGPIPE, SIG_DFL), signal(SIGCHLD, SIG_DFL);
		if (chdir("/root"))
			fprintf(stderr, "remote: no /root\n");
		execvp(argv[0], argv);
		fprintf(stderr, "remote: %s: %s\n", argv[0], strerror(errno));
		_exit(127);
	}
	close(in[0]), close(out[1]), close(err[1]);
	/* A process of its own feeds standard input, so that neither
	 * direction can block the other, and sees the client go away. */
	pid_t pump = fork();
	if (pump < 0)
		_exit(1);
	if (!pump) {
		int t;
		while ((t = get(s, b, &n)) > 0) {
			if (t == 'I' && !ended && wr(in[1], b, n))
				t = 'E';
			if (t == 'E' && !ended)
				close(in[1]), ended = 1;
		}
		kill(-pid, SIGTERM);
		usleep(200000);
		kill(-pid, SIGKILL);
		_exit(0);
	}
	close(in[1]);
	struct pollfd f[2] = { { out[0], POLLIN, 0 }, { err[0], POLLIN, 0 } };
	/* Done when the command has ended and its pipes are drained; a
	 * background child that keeps a pipe open is not waited for. */
	while (alive || f[0].fd >= 0 || f[1].fd >= 0) {
		int r = poll(f, 2, alive ? 20 : 50);
		if (alive && waitpid(pid, &st, WNOHANG) == pid)
			alive = 0;
		if (r == 0 && !alive)
			break;
		for (int i = 0; i < 2; i++)
			if (f[i].fd >= 0 && f[i].revents) {
				ssize_t k = read(f[i].fd, b, 65536);
				if (k <= 0)
					f[i].fd = -1;
				else if (put(s, "12"[i], b, k))
					_exit(0); /* the pump ends the command */
			}
	}
	kill(pump, SIGKILL);
	uint32_t x = htonl(WIFEXITED(st) ? WEXITSTATUS(st) : 128 + WTERMSIG(st));
	put(s, 'X', &x, 4);
	/* Closing with something unread would reset the connection, and the status be lost with the packet that carries it. */
	shutdown(s, SHUT_WR);
	while (read(s, b, MAXF) > 0)
		;
	_exit(0);
}

static int server(int port)
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(port) };
	int one = 1, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(l, (void *)&a, sizeof a) || listen(l, 64)) {
		perror("remote: listen");
		return 1;
	}
	signal(SIGCHLD, SIG_IGN);
	for (;;) {
		int s = accept4(l, NULL, NULL, SOCK_CLOEXEC);
		if (s < 0)
			continue;
		setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
		if (!fork()) {
			signal(SIGCHLD, SIG_DFL), signal(SIGPIPE, SIG_IGN);
			serve(s);
		}
		close(s);
	}
}

static int client(int argc, char **argv, int fwd)
{
	static char b[MAXF + 1];
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons(atoi(argv[1])) };
	int one = 1, s = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	uint32_t n = 0;
	inet_pton(AF_INET, argv[0], &a.sin_addr);
	if (connect(s, (void *)&a, sizeof a))
		return 125;
	setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	/* A guest that has ended says nothing any more: 10 s + 4 * 5 s of that is a lost connection. */
	int idle = 10, every = 5, times = 4, ms = 30000;
	setsockopt(s, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
	setsockopt(s, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
	setsockopt(s, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
	setsockopt(s, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
	setsockopt(s, IPPROTO_TCP, TCP_USER_TIMEOUT, &ms, sizeof ms);
	for (int i = 2; i < argc; i++) {
		size_t k = strlen(argv[i]) + 1;
		if (n + k > MAXF)
			return 125;
		memcpy(b + n, argv[i], k), n += k;
	}
	if (put(s, 'R', b, n) || (!fwd && put(s, 'E', "", 0)))
		return 125;
	pid_t pump = fwd ? fork() : -1;
	if (!pump) {
		ssize_t k;
		while ((k = read(0, b, 65536)) > 0 && !put(s, 'I', b, k))
			;
		put(s, 'E', "", 0);
		_exit(0);
	}
	int t, rc = 125;
	while ((t = get(s, b, &n)) == '1' || t == '2')
		if (wr(t - '0', b, n))
			break;
	if (t == 'X') {
		memcpy(&n, b, 4);
		rc = ntohl(n);
	}
	if (pump > 0)
		kill(pump, SIGKILL);
	return rc;
}

int main(int argc, char **argv)
{
	int fwd = 0;
	signal(SIGPIPE, SIG_IGN);
	if (argc == 3 && !strcmp(argv[1], "-s"))
		return server(atoi(argv[2]));
	if (argc > 1 && !strcmp(argv[1], "-i"))
		fwd = 1, argc--, argv++;
	if (argc < 4) {
		fprintf(stderr, "usage: remote -s PORT | remote [-i] HOST PORT CMD...\n");
		return 2;
	}
	return client(argc - 1, argv + 1, fwd);
}
