/* Completion queues and asynchronous events. */
#define _GNU_SOURCE
#include "peer.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#define WC_MAX 4096
#define IDLE_US 20 /* between two empty polls: the guest's one or two CPUs also run rxe */

int cmd_cq_create(const struct args *a)
{
	struct ibv_context *ctx = GET(a, "ctx", CTX, struct ibv_context);
	uint64_t cqe = 256, with_channel = 0;
	struct ibv_comp_channel *channel = NULL;

	if (!ctx || !arg_u64(a, "cqe", &cqe) || !arg_u64(a, "channel", &with_channel))
		return -1;
	errno = 0;
	if (with_channel && !(channel = ibv_create_comp_channel(ctx)))
		return fail_errno("ibv_create_comp_channel");
	struct ibv_cq *cq = ibv_create_cq(ctx, cqe, NULL, channel, 0);
	if (!cq) {
		int error = errno;
		if (channel)
			ibv_destroy_comp_channel(channel);
		errno = error;
		return fail_errno("ibv_create_cq");
	}
	int h = object_new(CQ, cq);
	object_at(h)->channel = channel;
	reply(" cq=%d cqe=%d", h, cq->cqe);
	return 0;
}

int cmd_cq_resize(const struct args *a)
{
	struct ibv_cq *cq = GET(a, "cq", CQ, struct ibv_cq);
	uint64_t cqe;

	if (!cq || !need_u64(a, "cqe", &cqe))
		return -1;
	if ((errno = ibv_resize_cq(cq, cqe)))
		return fail_errno("ibv_resize_cq");
	reply(" cqe=%d", cq->cqe);
	return 0;
}

/* wc=id:status:opcode:byte_len:imm:qpn:src_qp:flags:vendor_err. imm: the immediate data as a big-endian number, or the
 * invalidated rkey. rxe (seen: 6.12) hands the kernel's value of "with invalidate" on, 4, which is IBV_WC_IP_CSUM_OK in
 * verbs.h: a flag that RC and UC never have, so both are taken for it. */
static void say(const struct ibv_wc *w)
{
	uint32_t imm = 0;

	if (w->wc_flags & IBV_WC_WITH_IMM)
		imm = ntohl(w->imm_data);
	else if (w->wc_flags & (IBV_WC_WITH_INV | IBV_WC_IP_CSUM_OK))
		imm = w->invalidated_rkey;
	reply(" wc=0x%lx:%d:%d:%u:0x%x:0x%x:0x%x:%u:%u", w->wr_id, w->status, w->opcode, w->byte_len, imm, w->qp_num, w->src_qp,
	      w->wc_flags, w->vendor_err);
}

/* Waits until n completions came or timeout_ms is over; says those that came (n=0: what is there now). */
int cmd_cq_poll(const struct args *a)
{
	struct ibv_cq *cq = GET(a, "cq", CQ, struct ibv_cq);
	uint64_t want = 1, timeout = 0, got = 0, deadline;
	struct ibv_wc w;

	if (!cq || !arg_u64(a, "n", &want) || !arg_u64(a, "timeout_ms", &timeout))
		return -1;
	deadline = now_us() + timeout * 1000;
	while (got < (want ? want : WC_MAX) && got < WC_MAX) {
		int n = ibv_poll_cq(cq, 1, &w);
		if (n < 0)
			return fail(EIO, "ibv_poll_cq", "returned %d", n);
		if (n > 0) {
			got++;
			say(&w);
			continue;
		}
		if (!want || expired(deadline))
			break;
		usleep(IDLE_US);
	}
	reply(" n=%lu", got);
	return 0;
}

int cmd_cq_arm(const struct args *a)
{
	struct ibv_cq *cq = GET(a, "cq", CQ, struct ibv_cq);
	uint64_t solicited = 0;

	if (!cq || !arg_u64(a, "solicited", &solicited))
		return -1;
	if ((errno = ibv_req_notify_cq(cq, !!solicited)))
		return fail_errno("ibv_req_notify_cq");
	return 0;
}

static int wait_fd(int fd, uint64_t timeout_ms)
{
	struct pollfd f = { .fd = fd, .events = POLLIN };

	return poll(&f, 1, timeout_ms > 600000 ? 600000 : (int)timeout_ms);
}

/* event=1: the armed CQ's channel told so within timeout_ms; event=0: it did not. */
int cmd_cq_wait(const struct args *a)
{
	struct object *o = object_get(a, "cq", CQ);
	uint64_t timeout = 0;
	struct ibv_cq *cq;
	void *user;

	if (!o || !arg_u64(a, "timeout_ms", &timeout))
		return -1;
	if (!o->channel)
		return fail(EINVAL, "cq", "made without channel=1");
	int r = wait_fd(o->channel->fd, timeout);
	if (r < 0)
		return fail_errno("poll");
	if (r > 0) {
		if (ibv_get_cq_event(o->channel, &cq, &user))
			return fail_errno("ibv_get_cq_event");
		ibv_ack_cq_events(cq, 1);
	}
	reply(" event=%d", r > 0);
	return 0;
}

/* The asynchronous events of a context: waits up to timeout_ms for a first one, takes all. event=NUMBER:QPN (0 where the
 * event is not a QP's) */
int cmd_events(const struct args *a)
{
	struct ibv_context *ctx = GET(a, "ctx", CTX, struct ibv_context);
	uint64_t timeout = 0;
	int n = 0;

	if (!ctx || !arg_u64(a, "timeout_ms", &timeout))
		return -1;
	while (wait_fd(ctx->async_fd, n ? 0 : timeout) > 0) {
		struct ibv_async_event e;
		uint32_t qpn = 0;
		if (ibv_get_async_event(ctx, &e))
			return fail_errno("ibv_get_async_event");
		switch (e.event_type) {
		case IBV_EVENT_QP_FATAL:
		case IBV_EVENT_QP_REQ_ERR:
		case IBV_EVENT_QP_ACCESS_ERR:
		case IBV_EVENT_COMM_EST:
		case IBV_EVENT_SQ_DRAINED:
		case IBV_EVENT_PATH_MIG:
		case IBV_EVENT_PATH_MIG_ERR:
		case IBV_EVENT_QP_LAST_WQE_REACHED:
			qpn = e.element.qp->qp_num;
			break;
		default:
			break;
		}
		reply(" event=%d:0x%x", e.event_type, qpn);
		ibv_ack_async_event(&e);
		n++;
	}
	reply(" n=%d", n);
	return 0;
}
