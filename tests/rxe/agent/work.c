/* Queue pairs and the work posted to them. */
#define _GNU_SOURCE
#include "peer.h"
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SGE_MAX 32

/* A word that may stand for a number. */
struct name {
	const char *name;
	uint64_t value;
};

static bool by_name(const struct args *a, const char *key, const struct name *names, uint64_t *v)
{
	const char *text = arg(a, key, NULL);

	if (!text)
		return true;
	for (; names->name; names++)
		if (!strcmp(names->name, text)) {
			*v = names->value;
			return true;
		}
	if (parse_u64(text, v))
		return true;
	fail(EINVAL, key, "unknown: %s", text);
	return false;
}

static const struct name qp_types[] = { { "rc", IBV_QPT_RC }, { "uc", IBV_QPT_UC }, { 0 } };
static const struct name qp_states[] = { { "reset", IBV_QPS_RESET }, { "init", IBV_QPS_INIT }, { "rtr", IBV_QPS_RTR },
					 { "rts", IBV_QPS_RTS },     { "sqd", IBV_QPS_SQD },   { "sqe", IBV_QPS_SQE },
					 { "err", IBV_QPS_ERR },     { 0 } };
static const struct name opcodes[] = { { "send", IBV_WR_SEND },
				       { "send_imm", IBV_WR_SEND_WITH_IMM },
				       { "send_inv", IBV_WR_SEND_WITH_INV },
				       { "write", IBV_WR_RDMA_WRITE },
				       { "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM },
				       { "read", IBV_WR_RDMA_READ },
				       { "cas", IBV_WR_ATOMIC_CMP_AND_SWP },
				       { "fadd", IBV_WR_ATOMIC_FETCH_AND_ADD },
				       { "bind_mw", IBV_WR_BIND_MW },
				       { "local_inv", IBV_WR_LOCAL_INV },
				       { 0 } };
static const struct name send_flags[] = { { "fence", IBV_SEND_FENCE },
					  { "signaled", IBV_SEND_SIGNALED },
					  { "solicited", IBV_SEND_SOLICITED },
					  { "inline", IBV_SEND_INLINE },
					  { 0 } };

int cmd_qp_create(const struct args *a)
{
	struct ibv_pd *pd = GET(a, "pd", PD, struct ibv_pd);
	struct ibv_cq *scq = pd ? GET(a, "scq", CQ, struct ibv_cq) : NULL;
	struct object *rcq, *srq;
	uint64_t type = IBV_QPT_RC, swr = 64, rwr = 64, ssge = 4, rsge = 4, inl = 0, sig_all = 0;

	if (!scq || !object_find(a, "rcq", CQ, &rcq) || !object_find(a, "srq", SRQ, &srq) ||
	    !by_name(a, "type", qp_types, &type) || !arg_u64(a, "send_wr", &swr) || !arg_u64(a, "recv_wr", &rwr) ||
	    !arg_u64(a, "send_sge", &ssge) || !arg_u64(a, "recv_sge", &rsge) || !arg_u64(a, "inline", &inl) ||
	    !arg_u64(a, "sig_all", &sig_all))
		return -1;
	struct ibv_qp_init_attr i = {
		.send_cq = scq,
		.recv_cq = rcq ? rcq->p : scq,
		.srq = srq ? srq->p : NULL,
		.cap = { .max_send_wr = swr, .max_recv_wr = rwr, .max_send_sge = ssge, .max_recv_sge = rsge, .max_inline_data = inl },
		.qp_type = type,
		.sq_sig_all = !!sig_all,
	};
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp(pd, &i);
	if (!qp)
		return fail_errno("ibv_create_qp");
	reply(" qp=%d qpn=0x%x send_wr=%u recv_wr=%u send_sge=%u recv_sge=%u inline=%u", object_new(QP, qp), qp->qp_num,
	      i.cap.max_send_wr, i.cap.max_recv_wr, i.cap.max_send_sge, i.cap.max_recv_sge, i.cap.max_inline_data);
	return 0;
}

/* One attribute: if its key is given, its bit is set in the mask. */
#define ATTRIBUTE(key, bit, field)                              \
	do {                                                    \
		uint64_t v_ = 0;                                \
		if (!arg_u64(a, key, &v_))                      \
			return -1;                              \
		if (arg(a, key, NULL)) {                        \
			(field) = v_;                           \
			mask |= (bit);                          \
		}                                               \
	} while (0)

static int address_vector(const struct args *a, struct ibv_ah_attr *av, int *out)
{
	int mask = 0;
	const char *dgid = arg(a, "dgid", NULL);

	if (dgid) {
		if (!parse_gid(dgid, &av->grh.dgid))
			return fail(EINVAL, "dgid", "not a GID: %s", dgid);
		mask = IBV_QP_AV;
	}
	av->is_global = 1;
	av->port_num = 1;
	av->grh.hop_limit = 64;
	ATTRIBUTE("sgid_index", IBV_QP_AV, av->grh.sgid_index);
	ATTRIBUTE("hop_limit", IBV_QP_AV, av->grh.hop_limit);
	ATTRIBUTE("traffic_class", IBV_QP_AV, av->grh.traffic_class);
	ATTRIBUTE("flow_label", IBV_QP_AV, av->grh.flow_label);
	ATTRIBUTE("sl", IBV_QP_AV, av->sl);
	*out |= mask;
	return 0;
}

/* Exactly the attributes that are given go into the mask of ibv_modify_qp. */
int cmd_qp_modify(const struct args *a)
{
	struct ibv_qp *qp = GET(a, "qp", QP, struct ibv_qp);
	struct ibv_qp_attr t = { 0 };
	uint64_t state = 0, cur = 0, mtu = 0;
	int mask = 0;

	if (!qp || !by_name(a, "state", qp_states, &state) || !by_name(a, "cur_state", qp_states, &cur) ||
	    address_vector(a, &t.ah_attr, &mask) || !arg_u64(a, "path_mtu", &mtu))
		return -1;
	t.qp_state = state;
	t.cur_qp_state = cur;
	mask |= arg(a, "state", NULL) ? IBV_QP_STATE : 0;
	mask |= arg(a, "cur_state", NULL) ? IBV_QP_CUR_STATE : 0;
	if (mtu) { /* in bytes here, a code in verbs */
		for (int code = IBV_MTU_256; code <= IBV_MTU_4096; code++)
			if (128u << code == mtu)
				t.path_mtu = code;
		if (!t.path_mtu)
			return fail(EINVAL, "path_mtu", "256, 512, 1024, 2048 or 4096");
		mask |= IBV_QP_PATH_MTU;
	}
	ATTRIBUTE("port", IBV_QP_PORT, t.port_num);
	ATTRIBUTE("pkey_index", IBV_QP_PKEY_INDEX, t.pkey_index);
	ATTRIBUTE("access", IBV_QP_ACCESS_FLAGS, t.qp_access_flags);
	ATTRIBUTE("qkey", IBV_QP_QKEY, t.qkey);
	ATTRIBUTE("dest_qpn", IBV_QP_DEST_QPN, t.dest_qp_num);
	ATTRIBUTE("rq_psn", IBV_QP_RQ_PSN, t.rq_psn);
	ATTRIBUTE("sq_psn", IBV_QP_SQ_PSN, t.sq_psn);
	ATTRIBUTE("max_rd_atomic", IBV_QP_MAX_QP_RD_ATOMIC, t.max_rd_atomic);
	ATTRIBUTE("max_dest_rd_atomic", IBV_QP_MAX_DEST_RD_ATOMIC, t.max_dest_rd_atomic);
	ATTRIBUTE("min_rnr_timer", IBV_QP_MIN_RNR_TIMER, t.min_rnr_timer);
	ATTRIBUTE("timeout", IBV_QP_TIMEOUT, t.timeout);
	ATTRIBUTE("retry_cnt", IBV_QP_RETRY_CNT, t.retry_cnt);
	ATTRIBUTE("rnr_retry", IBV_QP_RNR_RETRY, t.rnr_retry);
	ATTRIBUTE("en_sqd_notify", IBV_QP_EN_SQD_ASYNC_NOTIFY, t.en_sqd_async_notify);
	if ((errno = ibv_modify_qp(qp, &t, mask)))
		return fail_errno("ibv_modify_qp");
	return 0;
}

int cmd_qp_query(const struct args *a)
{
	struct ibv_qp *qp = GET(a, "qp", QP, struct ibv_qp);
	struct ibv_qp_attr t;
	struct ibv_qp_init_attr i;

	if (!qp)
		return -1;
	if ((errno = ibv_query_qp(qp, &t, 0xfffff, &i)))
		return fail_errno("ibv_query_qp");
	reply(" state=%d qpn=0x%x dest_qpn=0x%x rq_psn=0x%x sq_psn=0x%x path_mtu=%d access=0x%x max_rd_atomic=%d"
	      " max_dest_rd_atomic=%d min_rnr_timer=%d timeout=%d retry_cnt=%d rnr_retry=%d sq_draining=%d sgid_index=%d",
	      t.qp_state, qp->qp_num, t.dest_qp_num, t.rq_psn, t.sq_psn, t.path_mtu ? 128 << t.path_mtu : 0, t.qp_access_flags,
	      t.max_rd_atomic, t.max_dest_rd_atomic, t.min_rnr_timer, t.timeout, t.retry_cnt, t.rnr_retry, t.sq_draining,
	      t.ah_attr.grh.sgid_index);
	return 0;
}

/* sge=ADDR:LEN:LKEY, any number of them. */
static int sges(const struct args *a, struct ibv_sge *list)
{
	const char *text;
	int from = 0, n = 0;

	while ((text = arg(a, "sge", &from))) {
		unsigned long addr;
		unsigned len, key;
		if (n == SGE_MAX)
			return fail(EINVAL, "sge", "more than %d", SGE_MAX);
		if (sscanf(text, "%li:%i:%i", (long *)&addr, (int *)&len, (int *)&key) != 3)
			return fail(EINVAL, "sge", "not ADDR:LEN:LKEY: %s", text);
		list[n++] = (struct ibv_sge){ .addr = addr, .length = len, .lkey = key };
	}
	return n;
}

/* count= work requests; each later one has its id one higher and its addresses stride= bytes further. */
struct repeat {
	uint64_t count, stride;
};

static bool repeat_args(const struct args *a, struct repeat *r)
{
	r->count = 1;
	r->stride = 0;
	return arg_u64(a, "count", &r->count) && arg_u64(a, "stride", &r->stride);
}

static void step_sges(struct ibv_sge *list, int n, uint64_t stride)
{
	for (int i = 0; i < n; i++)
		list[i].addr += stride;
}

static bool parse_flags(const struct args *a, unsigned *flags)
{
	char text[128], *save, *word;

	snprintf(text, sizeof text, "%s", arg(a, "flags", NULL) ? arg(a, "flags", NULL) : "signaled");
	*flags = 0;
	for (word = strtok_r(text, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
		const struct name *f = send_flags;
		while (f->name && strcmp(f->name, word))
			f++;
		if (!f->name && strcmp(word, "none")) {
			fail(EINVAL, "flags", "unknown: %s", word);
			return false;
		}
		*flags |= f->value;
	}
	return true;
}

/* The window's part of a bind: mw= mr= va= len= access=, and rkey= for type 2 (absent: the next one). */
static bool bind_args(const struct args *a, struct object **mw, struct ibv_mw_bind_info *info)
{
	struct ibv_mr *mr = GET(a, "mr", MR, struct ibv_mr);
	uint64_t va = 0, len = 0, access = 0;

	*mw = mr ? object_get(a, "mw", MW) : NULL;
	if (!*mw || !arg_u64(a, "va", &va) || !arg_u64(a, "len", &len) || !arg_u64(a, "access", &access))
		return false;
	*info = (struct ibv_mw_bind_info){ .mr = mr, .addr = va, .length = len, .mw_access_flags = access };
	return true;
}

/* What the opcode needs beyond its SGEs. */
static bool opcode_args(const struct args *a, struct ibv_send_wr *wr, struct object **mw)
{
	uint64_t ra = 0, rkey = 0, imm = 0, inv = 0, compare = 0, swap = 0, add = 0;

	if (!arg_u64(a, "ra", &ra) || !arg_u64(a, "rkey", &rkey) || !arg_u64(a, "imm", &imm) || !arg_u64(a, "inv", &inv) ||
	    !arg_u64(a, "compare", &compare) || !arg_u64(a, "swap", &swap) || !arg_u64(a, "add", &add))
		return false;
	switch (wr->opcode) {
	case IBV_WR_SEND_WITH_INV:
	case IBV_WR_LOCAL_INV:
		wr->invalidate_rkey = inv;
		return true;
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr->wr.atomic.remote_addr = ra;
		wr->wr.atomic.rkey = rkey;
		wr->wr.atomic.compare_add = wr->opcode == IBV_WR_ATOMIC_FETCH_AND_ADD ? add : compare;
		wr->wr.atomic.swap = swap;
		return true;
	case IBV_WR_BIND_MW:
		if (!bind_args(a, mw, &wr->bind_mw.bind_info))
			return false;
		wr->bind_mw.mw = (*mw)->p;
		wr->bind_mw.rkey = arg(a, "rkey", NULL) ? rkey : ibv_inc_rkey((*mw)->rkey);
		return true;
	default:
		wr->wr.rdma.remote_addr = ra;
		wr->wr.rdma.rkey = rkey;
		wr->imm_data = htonl(imm);
		return true;
	}
}

static void step_wr(struct ibv_send_wr *wr, uint64_t stride)
{
	wr->wr_id++;
	step_sges(wr->sg_list, wr->num_sge, stride);
	if (wr->opcode == IBV_WR_RDMA_WRITE || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM || wr->opcode == IBV_WR_RDMA_READ)
		wr->wr.rdma.remote_addr += stride;
}

int cmd_post_send(const struct args *a)
{
	struct ibv_qp *qp = GET(a, "qp", QP, struct ibv_qp);
	struct ibv_sge list[SGE_MAX];
	struct object *mw = NULL;
	struct repeat r;
	struct ibv_send_wr wr = { 0 }, *bad;
	uint64_t op = IBV_WR_SEND;

	if (!qp || !arg_u64(a, "id", &wr.wr_id) || !by_name(a, "op", opcodes, &op) || !parse_flags(a, &wr.send_flags) ||
	    !repeat_args(a, &r) || (wr.num_sge = sges(a, list)) < 0)
		return -1;
	wr.sg_list = list;
	wr.opcode = op;
	if (!opcode_args(a, &wr, &mw))
		return -1;
	for (uint64_t i = 0; i < r.count; i++, step_wr(&wr, r.stride)) {
		for (int k = 0; wr.send_flags & IBV_SEND_INLINE && k < wr.num_sge; k++)
			if (!memory_ours(list[k].addr, list[k].length)) /* the library would copy from there */
				return fail(EFAULT, "sge", "inline data outside of any buffer");
		if ((errno = ibv_post_send(qp, &wr, &bad)))
			return fail(errno, "ibv_post_send", "posted %lu of %lu: %s", i, r.count, strerror(errno));
	}
	if (mw) {
		mw->rkey = wr.bind_mw.rkey;
		reply(" rkey=0x%lx", mw->rkey);
	}
	return 0;
}

/* To qp= or srq=. */
int cmd_post_recv(const struct args *a)
{
	struct object *qp, *srq;
	struct ibv_sge list[SGE_MAX];
	struct repeat r;
	struct ibv_recv_wr wr = { 0 }, *bad;

	if (!object_find(a, "qp", QP, &qp) || !object_find(a, "srq", SRQ, &srq) || !arg_u64(a, "id", &wr.wr_id) ||
	    !repeat_args(a, &r) || (wr.num_sge = sges(a, list)) < 0)
		return -1;
	if (!qp == !srq)
		return fail(EINVAL, "qp", "either qp= or srq=");
	wr.sg_list = list;
	for (uint64_t i = 0; i < r.count; i++, wr.wr_id++, step_sges(list, wr.num_sge, r.stride)) {
		errno = qp ? ibv_post_recv(qp->p, &wr, &bad) : ibv_post_srq_recv(srq->p, &wr, &bad);
		if (errno)
			return fail(errno, "ibv_post_recv", "posted %lu of %lu: %s", i, r.count, strerror(errno));
	}
	return 0;
}

/* A type 1 window; type 2 is bound by post_send op=bind_mw. */
int cmd_mw_bind(const struct args *a)
{
	struct ibv_qp *qp = GET(a, "qp", QP, struct ibv_qp);
	struct object *mw = NULL;
	struct ibv_mw_bind bind = { .send_flags = IBV_SEND_SIGNALED };

	if (!qp || !arg_u64(a, "id", &bind.wr_id) || !bind_args(a, &mw, &bind.bind_info))
		return -1;
	if ((errno = ibv_bind_mw(qp, mw->p, &bind)))
		return fail_errno("ibv_bind_mw");
	mw->rkey = ((struct ibv_mw *)mw->p)->rkey;
	reply(" rkey=0x%lx", mw->rkey);
	return 0;
}
