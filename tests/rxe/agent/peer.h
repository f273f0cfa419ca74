/* The verbs agent: what its files share. The protocol is described at the head of peer.c. */
#ifndef PEER_H
#define PEER_H
#include <infiniband/verbs.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- args.c: one request line, one reply line ------------------------------------------------ */
#define MAX_ARGS 64
struct args {
	int n;
	char *key[MAX_ARGS], *val[MAX_ARGS];
};
/* Splits "command key=value ..." in place; returns the command, or NULL (fail() was called). */
char *args_parse(struct args *a, char *line);
/* The value of `key`, or NULL. `from` starts the search: pass 0; for repeated keys pass the index after the last hit. */
const char *arg(const struct args *a, const char *key, int *from);
bool arg_u64(const struct args *a, const char *key, uint64_t *v);  /* absent: *v stays; false: malformed, fail() was called */
bool need_u64(const struct args *a, const char *key, uint64_t *v); /* absent or malformed: false, fail() was called */
bool parse_u64(const char *text, uint64_t *v);                     /* decimal or 0x; nothing may follow */
bool parse_gid(const char *text, union ibv_gid *gid);              /* 32 hex digits, or IPv6 or IPv4 text */

void reply_reset(void);                             /* peer.c: the reply line is empty again */
void reply_vadd(const char *format, va_list ap);    /* peer.c */
void reply(const char *format, ...) __attribute__((format(printf, 1, 2))); /* adds to the reply line */
/* The reply becomes "err ...". `at` is the call or the argument. Always returns -1. */
int fail(int error, const char *at, const char *format, ...) __attribute__((format(printf, 3, 4)));
int fail_errno(const char *at); /* the same with errno and its text */

uint64_t now_us(void);
bool expired(uint64_t deadline_us);

/* --- memory.c -------------------------------------------------------------------------------- */
struct buffer {
	uint8_t *map; /* guard, data, guard */
	size_t map_len;
	uint8_t *base; /* data */
	size_t len;
};
void buffer_free(struct buffer *b);
bool memory_ours(uint64_t addr, uint64_t len); /* does [addr, addr+len) lie in one buffer's data? */

/* --- objects.c: handles ---------------------------------------------------------------------- */
enum kind { NONE, CTX, PD, BUF, MR, MW, CQ, SRQ, QP };
struct object {
	enum kind kind;
	void *p;
	struct ibv_comp_channel *channel; /* CQ made with channel=1 */
	uint64_t rkey;                    /* MW: the key that is bound, or being bound */
};
int object_new(enum kind kind, void *p); /* the handle, 1 and up */
struct object *object_at(int handle);    /* NULL past the last one */
/* The object named by `key`, or NULL (fail() was called). */
struct object *object_get(const struct args *a, const char *key, enum kind kind);
/* The same, but absence of the key is allowed: *found says. false: fail() was called. */
bool object_find(const struct args *a, const char *key, enum kind kind, struct object **found);
#define GET(a, key, kind, type) ({ struct object *o_ = object_get(a, key, kind); o_ ? (type *)o_->p : NULL; })

/* --- commands: 0, or -1 after fail() --------------------------------------------------------- */
typedef int command(const struct args *a);
command cmd_buf_alloc, cmd_buf_fill, cmd_buf_verify, cmd_buf_read, cmd_buf_write, cmd_buf_crc, cmd_buf_guard;
command cmd_devices, cmd_open, cmd_query_device, cmd_query_port, cmd_gids, cmd_counters, cmd_pd_alloc, cmd_mr_reg, cmd_mr_rereg,
	cmd_mw_alloc, cmd_srq_create, cmd_destroy;
command cmd_cq_create, cmd_cq_resize, cmd_cq_poll, cmd_cq_arm, cmd_cq_wait, cmd_events;
command cmd_qp_create, cmd_qp_modify, cmd_qp_query, cmd_post_send, cmd_post_recv, cmd_mw_bind;
#endif
