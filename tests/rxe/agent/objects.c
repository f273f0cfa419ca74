/* Devices and the objects without traffic: contexts, PDs, MRs, MWs, SRQs. And the handle table. */
#define _GNU_SOURCE
#include "peer.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const kind_name[] = { "nothing", "context", "PD", "buffer", "MR", "MW", "CQ", "SRQ", "QP" };
static struct object **objects; /* a table of pointers: objects do not move as it grows */
static int objects_len;

int object_new(enum kind kind, void *p)
{
	struct object *o = calloc(1, sizeof *o);

	if (objects_len % 256 == 0)
		objects = realloc(objects, (objects_len + 256) * sizeof *objects);
	if (!objects || !o)
		abort(); /* ends this connection only */
	o->kind = kind;
	o->p = p;
	objects[objects_len] = o;
	return ++objects_len;
}

struct object *object_at(int handle)
{
	return handle >= 1 && handle <= objects_len ? objects[handle - 1] : NULL;
}

bool object_find(const struct args *a, const char *key, enum kind kind, struct object **found)
{
	uint64_t handle = 0;

	*found = NULL;
	if (!arg(a, key, NULL))
		return true;
	if (!arg_u64(a, key, &handle))
		return false;
	struct object *o = handle <= (uint64_t)objects_len ? object_at(handle) : NULL;
	if (!o || o->kind != kind) {
		fail(ENOENT, key, "handle %lu is no %s", handle, kind_name[kind]);
		return false;
	}
	*found = o;
	return true;
}

struct object *object_get(const struct args *a, const char *key, enum kind kind)
{
	struct object *o;

	if (!object_find(a, key, kind, &o))
		return NULL;
	if (!o)
		fail(EINVAL, key, "missing");
	return o;
}

int cmd_devices(const struct args *a)
{
	int n;
	struct ibv_device **list = ibv_get_device_list(&n);

	(void)a;
	if (!list)
		return fail_errno("ibv_get_device_list");
	for (int i = 0; i < n; i++)
		reply(" dev=%s", ibv_get_device_name(list[i]));
	ibv_free_device_list(list);
	return 0;
}

int cmd_open(const struct args *a)
{
	const char *name = arg(a, "dev", NULL);
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *ctx = NULL;
	bool found = false;

	if (!list)
		return fail_errno("ibv_get_device_list");
	for (int i = 0; list[i] && !found; i++)
		if (!name || !strcmp(ibv_get_device_name(list[i]), name)) {
			found = true;
			errno = 0;
			ctx = ibv_open_device(list[i]);
		}
	ibv_free_device_list(list);
	if (!found)
		return fail(ENODEV, "dev", "no such device: %s", name ? name : "(any)");
	if (!ctx)
		return fail_errno("ibv_open_device");
	reply(" ctx=%d", object_new(CTX, ctx));
	return 0;
}

int cmd_query_device(const struct args *a)
{
	struct ibv_context *ctx = GET(a, "ctx", CTX, struct ibv_context);
	struct ibv_device_attr d;

	if (!ctx)
		return -1;
	if ((errno = ibv_query_device(ctx, &d)))
		return fail_errno("ibv_query_device");
	reply(" max_qp=%d max_qp_wr=%d max_sge=%d max_sge_rd=%d max_cq=%d max_cqe=%d max_mr=%d max_mw=%d max_pd=%d"
	      " max_qp_rd_atom=%d max_qp_init_rd_atom=%d max_srq=%d max_srq_wr=%d atomic_cap=%d cap_flags=0x%x"
	      " local_ca_ack_delay=%d max_pkeys=%d",
	      d.max_qp, d.max_qp_wr, d.max_sge, d.max_sge_rd, d.max_cq, d.max_cqe, d.max_mr, d.max_mw, d.max_pd,
	      d.max_qp_rd_atom, d.max_qp_init_rd_atom, d.max_srq, d.max_srq_wr, d.atomic_cap, d.device_cap_flags,
	      d.local_ca_ack_delay, d.max_pkeys);
	return 0;
}

int cmd_query_port(const struct args *a)
{
	struct ibv_context *ctx = GET(a, "ctx", CTX, struct ibv_context);
	struct ibv_port_attr p;

	if (!ctx)
		return -1;
	if ((errno = ibv_query_port(ctx, 1, &p)))
		return fail_errno("ibv_query_port");
	reply(" state=%d max_mtu=%d active_mtu=%d gid_tbl_len=%d max_msg_sz=0x%x pkey_tbl_len=%d link_layer=%d", p.state,
	      128 << p.max_mtu, 128 << p.active_mtu, p.gid_tbl_len, p.max_msg_sz, p.pkey_tbl_len, p.link_layer);
	return 0;
}

int cmd_gids(const struct args *a)
{
	struct ibv_context *ctx = GET(a, "ctx", CTX, struct ibv_context);
	struct ibv_gid_entry e[64];

	if (!ctx)
		return -1;
	ssize_t n = ibv_query_gid_table(ctx, e, 64, 0);
	if (n < 0) {
		errno = -n;
		return fail_errno("ibv_query_gid_table");
	}
	for (ssize_t i = 0; i < n; i++) {
		reply(" gid=%u:", e[i].gid_index);
		for (int k = 0; k < 16; k++)
			reply("%02x", e[i].gid.raw[k]);
		reply(":%s", e[i].gid_type == IBV_GID_TYPE_ROCE_V2 ? "v2" : e[i].gid_type == IBV_GID_TYPE_ROCE_V1 ? "v1" : "ib");
	}
	return 0;
}

int cmd_counters(const struct args *a)
{
	const char *name = arg(a, "dev", NULL);
	char path[512], value[64];
	struct dirent *e;

	snprintf(path, sizeof path, "/sys/class/infiniband/%s/ports/1/hw_counters", name ? name : "rxe0");
	DIR *d = opendir(path);
	if (!d)
		return fail_errno(path);
	while ((e = readdir(d))) {
		char file[1024];
		snprintf(file, sizeof file, "%s/%s", path, e->d_name);
		FILE *f = *e->d_name == '.' ? NULL : fopen(file, "r");
		if (f && fscanf(f, "%63s", value) == 1)
			reply(" %s=%s", e->d_name, value);
		if (f)
			fclose(f);
	}
	closedir(d);
	return 0;
}

int cmd_pd_alloc(const struct args *a)
{
	struct ibv_context *ctx = GET(a, "ctx", CTX, struct ibv_context);

	if (!ctx)
		return -1;
	struct ibv_pd *pd = ibv_alloc_pd(ctx);
	if (!pd)
		return fail_errno("ibv_alloc_pd");
	reply(" pd=%d", object_new(PD, pd));
	return 0;
}

/* The part of a buffer that an MR covers: off= len=. */
static bool extent(const struct args *a, struct buffer *b, uint64_t *off, uint64_t *len)
{
	*off = 0;
	if (!arg_u64(a, "off", off))
		return false;
	*len = *off <= b->len ? b->len - *off : 0;
	if (!arg_u64(a, "len", len))
		return false;
	if (*off <= b->len && *len <= b->len - *off)
		return true;
	fail(EINVAL, "off", "%lu+%lu is past the buffer's %zu bytes", *off, *len, b->len);
	return false;
}

int cmd_mr_reg(const struct args *a)
{
	struct ibv_pd *pd = GET(a, "pd", PD, struct ibv_pd);
	struct buffer *b = pd ? GET(a, "buf", BUF, struct buffer) : NULL;
	uint64_t off, len, access = IBV_ACCESS_LOCAL_WRITE, iova;

	if (!b || !extent(a, b, &off, &len) || !arg_u64(a, "access", &access))
		return -1;
	iova = (uintptr_t)b->base + off;
	if (!arg_u64(a, "iova", &iova))
		return -1;
	errno = 0;
	struct ibv_mr *mr = ibv_reg_mr_iova(pd, b->base + off, len, iova, access);
	if (!mr)
		return fail_errno("ibv_reg_mr_iova");
	reply(" mr=%d lkey=0x%x rkey=0x%x va=0x%lx len=%lu", object_new(MR, mr), mr->lkey, mr->rkey, iova, len);
	return 0;
}

/* Changes what is given: pd=, access=, buf= (with off=, len=). */
int cmd_mr_rereg(const struct args *a)
{
	struct ibv_mr *mr = GET(a, "mr", MR, struct ibv_mr);
	struct object *pd, *buf;
	uint64_t off = 0, len = 0, access = 0;
	int flags = 0;

	if (!mr || !object_find(a, "pd", PD, &pd) || !object_find(a, "buf", BUF, &buf) || !arg_u64(a, "access", &access))
		return -1;
	if (buf && !extent(a, buf->p, &off, &len))
		return -1;
	flags |= pd ? IBV_REREG_MR_CHANGE_PD : 0;
	flags |= buf ? IBV_REREG_MR_CHANGE_TRANSLATION : 0;
	flags |= arg(a, "access", NULL) ? IBV_REREG_MR_CHANGE_ACCESS : 0;
	errno = 0;
	int r = ibv_rereg_mr(mr, flags, pd ? pd->p : NULL, buf ? ((struct buffer *)buf->p)->base + off : NULL, len, access);
	if (r)
		return fail(errno ? errno : EIO, "ibv_rereg_mr", "code %d: %s", r, strerror(errno));
	reply(" lkey=0x%x rkey=0x%x va=0x%lx len=%zu", mr->lkey, mr->rkey, (unsigned long)mr->addr, mr->length);
	return 0;
}

int cmd_mw_alloc(const struct args *a)
{
	struct ibv_pd *pd = GET(a, "pd", PD, struct ibv_pd);
	uint64_t type = 2;

	if (!pd || !arg_u64(a, "type", &type))
		return -1;
	errno = 0;
	struct ibv_mw *mw = ibv_alloc_mw(pd, type);
	if (!mw)
		return fail_errno("ibv_alloc_mw");
	int h = object_new(MW, mw);
	object_at(h)->rkey = mw->rkey;
	reply(" mw=%d rkey=0x%x", h, mw->rkey);
	return 0;
}

int cmd_srq_create(const struct args *a)
{
	struct ibv_pd *pd = GET(a, "pd", PD, struct ibv_pd);
	uint64_t wr = 64, sge = 4;

	if (!pd || !arg_u64(a, "max_wr", &wr) || !arg_u64(a, "max_sge", &sge))
		return -1;
	struct ibv_srq_init_attr attr = { .attr = { .max_wr = wr, .max_sge = sge } };
	errno = 0;
	struct ibv_srq *srq = ibv_create_srq(pd, &attr);
	if (!srq)
		return fail_errno("ibv_create_srq");
	reply(" srq=%d", object_new(SRQ, srq));
	return 0;
}

static int destroy(struct object *o)
{
	int r = 0;

	switch (o->kind) {
	case CTX: r = ibv_close_device(o->p); break;
	case PD: r = ibv_dealloc_pd(o->p); break;
	case MR: r = ibv_dereg_mr(o->p); break;
	case MW: r = ibv_dealloc_mw(o->p); break;
	case SRQ: r = ibv_destroy_srq(o->p); break;
	case QP: r = ibv_destroy_qp(o->p); break;
	case BUF: buffer_free(o->p); break;
	case CQ:
		r = ibv_destroy_cq(o->p);
		if (!r && o->channel)
			ibv_destroy_comp_channel(o->channel);
		break;
	case NONE: break;
	}
	return r < 0 ? errno : r;
}

/* h=: any handle. A buffer goes last: memory under an MR must not vanish, which is the caller's business. */
int cmd_destroy(const struct args *a)
{
	uint64_t h;

	if (!need_u64(a, "h", &h))
		return -1;
	struct object *o = h <= (uint64_t)objects_len ? object_at(h) : NULL;
	if (!o || o->kind == NONE)
		return fail(ENOENT, "h", "no object %lu", h);
	if ((errno = destroy(o)))
		return fail_errno(kind_name[o->kind]);
	o->kind = NONE;
	o->p = NULL;
	return 0;
}
