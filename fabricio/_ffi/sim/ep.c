#include "ep.h"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

static int row_construct(struct sim_row *row, uint32_t size)
{
	uint32_t capacity = 1;

	while (capacity < size)
		capacity *= 2;
	row->places = calloc(capacity, sizeof(row->places[0]));
	row->mask = capacity - 1;
	return row->places ? 0 : -FI_ENOMEM;
}

static void ep_free(struct sim_ep *ep)
{
	free(ep->free.places);
	free(ep->pending.places);
	free(ep->waiting.places);
	free(ep->acks.places);
	free(ep->lost.places);
	free(ep->receives);
	free(ep->ops);
	free(ep);
}

/* Nobody reaches it from now on. */
static void ep_leave(struct sim_ep *ep)
{
	struct sim_wire *wire;
	int ret;

	wire = sim_wire_enter(&ret);
	if (ep->enabled)
		fab_list_remove(&ep->link);
	while (!fab_list_empty(&ep->paths)) {
		struct sim_path *path =
			FAB_ENTRY(ep->paths.next, struct sim_path, link);

		fab_list_remove(&path->link);
		sim_lock_take(&path->lock);
		path->target = NULL;
		sim_lock_give(&path->lock);
	}
	sim_wire_leave(wire);
}

static void ep_drop(struct sim_ep *ep, struct sim_row *row)
{
	while (row->count)
		sim_path_release(ep->ops[sim_row_pop(row)].path);
}

static int ep_close(struct fid *fid)
{
	struct sim_ep *ep = FAB_ENTRY(fid, struct sim_ep, fid.fid);

	ep_leave(ep);
	ep_drop(ep, &ep->pending);
	ep_drop(ep, &ep->waiting);
	ep_drop(ep, &ep->acks);
	ep_drop(ep, &ep->lost);
	if (ep->tx_cq) {
		fab_list_remove(&ep->tx_link);
		ep->tx_cq->binding_count--;
	}
	if (ep->rx_cq)
		ep->rx_cq->binding_count--;
	if (ep->av) {
		fab_list_remove(&ep->av_link);
		ep->av->endpoint_count--;
	}
	ep->domain->child_count--;
	ep_free(ep);
	return 0;
}

static int ep_bind_cq(struct sim_ep *ep, struct sim_cq *cq, uint64_t flags)
{
	const uint64_t known = FI_TRANSMIT | FI_RECV | FI_SELECTIVE_COMPLETION;

	if (flags & ~known)
		return -FI_EBADFLAGS;
	if (!(flags & (FI_TRANSMIT | FI_RECV)) || cq->domain != ep->domain ||
	    ((flags & FI_TRANSMIT) && ep->tx_cq) ||
	    ((flags & FI_RECV) && ep->rx_cq))
		return -FI_EINVAL;
	if (flags & FI_TRANSMIT) {
		ep->tx_cq = cq;
		ep->tx_selective = !!(flags & FI_SELECTIVE_COMPLETION);
		cq->binding_count++;
		fab_list_append(&cq->transmitters, &ep->tx_link);
	}
	if (flags & FI_RECV) {
		ep->rx_cq = cq;
		cq->binding_count++;
	}
	return 0;
}

static int ep_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	struct sim_ep *ep = FAB_ENTRY(fid, struct sim_ep, fid.fid);
	struct sim_av *av;

	if (ep->enabled)
		return -FI_EOPBADSTATE;
	if (other->fclass == FI_CLASS_CQ)
		return ep_bind_cq(ep, FAB_ENTRY(other, struct sim_cq, fid.fid),
				  flags);
	if (other->fclass != FI_CLASS_AV)
		return -FI_EINVAL;
	av = FAB_ENTRY(other, struct sim_av, fid.fid);
	if (ep->av || av->domain != ep->domain)
		return -FI_EINVAL;
	ep->av = av;
	av->endpoint_count++;
	fab_list_append(&av->endpoints, &ep->av_link);
	return 0;
}

static int ep_enable(struct sim_ep *ep)
{
	struct sim_wire *wire;
	int ret;

	if (ep->enabled)
		return -FI_EOPBADSTATE;
	if (!ep->av)
		return -FI_ENOAV;
	if (!ep->tx_cq || !ep->rx_cq)
		return -FI_ENOCQ;
	wire = sim_wire_enter(&ret);
	memcpy(ep->address.magic, SIM_ADDRESS_MAGIC, sizeof(ep->address.magic));
	ep->address.process = wire->process;
	ep->address.endpoint = ++wire->endpoint_number;
	ep->address.nic = ep->domain->nic->index;
	fab_list_append(&wire->endpoints, &ep->link);
	sim_wire_leave(wire);
	ep->enabled = 1;
	return 0;
}

static int ep_control(struct fid *fid, int command, void *arg)
{
	struct sim_ep *ep = FAB_ENTRY(fid, struct sim_ep, fid.fid);

	(void) arg;
	return command == FI_ENABLE ? ep_enable(ep) : -FI_ENOSYS;
}

static int ep_ops_open(struct fid *fid, const char *name, uint64_t flags,
		       void **ops, void *context)
{
	(void) fid;
	(void) name;
	(void) flags;
	(void) ops;
	(void) context;
	return -FI_ENOSYS;
}

static struct fi_ops ep_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = ep_close,
	.bind = ep_bind,
	.control = ep_control,
	.ops_open = ep_ops_open,
};

/* As on EFA's direct path: what was posted ends by itself, or with the
 * endpoint. */
static ssize_t ep_cancel(fid_t fid, void *context)
{
	(void) fid;
	(void) context;
	return -FI_EOPNOTSUPP;
}

static int ep_getopt(fid_t fid, int level, int name, void *value,
		     size_t *length)
{
	(void) fid;
	(void) level;
	(void) name;
	(void) value;
	(void) length;
	return -FI_ENOPROTOOPT;
}

static int ep_setopt(fid_t fid, int level, int name, const void *value,
		     size_t length)
{
	(void) fid;
	(void) level;
	(void) name;
	(void) value;
	(void) length;
	return -FI_ENOPROTOOPT;
}

static int ep_no_tx(struct fid_ep *fid, int index, struct fi_tx_attr *attr,
		    struct fid_ep **ep, void *context)
{
	(void) fid;
	(void) index;
	(void) attr;
	(void) ep;
	(void) context;
	return -FI_ENOSYS;
}

static int ep_no_rx(struct fid_ep *fid, int index, struct fi_rx_attr *attr,
		    struct fid_ep **ep, void *context)
{
	(void) fid;
	(void) index;
	(void) attr;
	(void) ep;
	(void) context;
	return -FI_ENOSYS;
}

static ssize_t ep_no_size_left(struct fid_ep *fid)
{
	(void) fid;
	return -FI_ENOSYS;
}

static struct fi_ops_ep ep_ops = {
	.size = sizeof(struct fi_ops_ep),
	.cancel = ep_cancel,
	.getopt = ep_getopt,
	.setopt = ep_setopt,
	.tx_ctx = ep_no_tx,
	.rx_ctx = ep_no_rx,
	.rx_size_left = ep_no_size_left,
	.tx_size_left = ep_no_size_left,
};

static int ep_getname(fid_t fid, void *address, size_t *length)
{
	const struct sim_ep *ep = FAB_ENTRY(fid, const struct sim_ep, fid.fid);
	size_t room = *length;

	if (!ep->enabled)
		return -FI_EOPBADSTATE;
	*length = sizeof(ep->address);
	memcpy(address, &ep->address, room < *length ? room : *length);
	return room < *length ? -FI_ETOOSMALL : 0;
}

static int ep_setname(fid_t fid, void *address, size_t length)
{
	(void) fid;
	(void) address;
	(void) length;
	return -FI_ENOSYS;
}

static int ep_getpeer(struct fid_ep *fid, void *address, size_t *length)
{
	(void) fid;
	(void) address;
	(void) length;
	return -FI_ENOSYS;
}

static int ep_connect(struct fid_ep *fid, const void *address,
		      const void *param, size_t length)
{
	(void) fid;
	(void) address;
	(void) param;
	(void) length;
	return -FI_ENOSYS;
}

static int ep_listen(struct fid_pep *fid)
{
	(void) fid;
	return -FI_ENOSYS;
}

static int ep_accept(struct fid_ep *fid, const void *param, size_t length)
{
	(void) fid;
	(void) param;
	(void) length;
	return -FI_ENOSYS;
}

static int ep_reject(struct fid_pep *fid, fid_t handle, const void *param,
		     size_t length)
{
	(void) fid;
	(void) handle;
	(void) param;
	(void) length;
	return -FI_ENOSYS;
}

static int ep_shutdown(struct fid_ep *fid, uint64_t flags)
{
	(void) fid;
	(void) flags;
	return -FI_ENOSYS;
}

static int ep_join(struct fid_ep *fid, const void *address, uint64_t flags,
		   struct fid_mc **mc, void *context)
{
	(void) fid;
	(void) address;
	(void) flags;
	(void) mc;
	(void) context;
	return -FI_ENOSYS;
}

static struct fi_ops_cm cm_ops = {
	.size = sizeof(struct fi_ops_cm),
	.setname = ep_setname,
	.getname = ep_getname,
	.getpeer = ep_getpeer,
	.connect = ep_connect,
	.listen = ep_listen,
	.accept = ep_accept,
	.reject = ep_reject,
	.shutdown = ep_shutdown,
	.join = ep_join,
};

static int ep_allocate(struct sim_ep *ep, uint32_t receive_size)
{
	uint32_t receives = 1;

	while (receives < receive_size)
		receives *= 2;
	ep->receive_mask = receives - 1;
	ep->receive_size = receive_size;
	ep->ops = sim_alloc(sizeof(ep->ops[0]) * (ep->size + 1));
	ep->receives = calloc(receives, sizeof(ep->receives[0]));
	if (!ep->ops || !ep->receives || row_construct(&ep->free, ep->size) ||
	    row_construct(&ep->pending, ep->size) ||
	    row_construct(&ep->waiting, ep->size) ||
	    row_construct(&ep->acks, ep->size) ||
	    row_construct(&ep->lost, ep->size))
		return -FI_ENOMEM;
	for (uint32_t i = 0; i < ep->size; i++)
		sim_row_push(&ep->free, i);
	return 0;
}

/* As asked for, within what the NIC has. 0: what it has. */
static uint32_t ep_size(size_t asked, uint32_t most)
{
	return asked && asked < most ? (uint32_t) asked : most;
}

int sim_ep_open(struct fid_domain *fid, struct fi_info *info,
		struct fid_ep **out, void *context)
{
	struct sim_domain *domain = FAB_ENTRY(fid, struct sim_domain, fid);
	uint32_t receive_size = domain->config.rx_size;
	struct sim_ep *ep;

	if (info->ep_attr && info->ep_attr->type != FI_EP_RDM &&
	    info->ep_attr->type != FI_EP_UNSPEC)
		return -FI_EINVAL;
	ep = sim_alloc(sizeof(*ep));
	if (!ep)
		return -FI_ENOMEM;
	ep->size = domain->config.tx_size;
	if (info->tx_attr) {
		ep->size = ep_size(info->tx_attr->size, ep->size);
		ep->tx_flags = info->tx_attr->op_flags;
	}
	if (info->rx_attr)
		receive_size = ep_size(info->rx_attr->size, receive_size);
	if (ep_allocate(ep, receive_size)) {
		ep_free(ep);
		return -FI_ENOMEM;
	}
	ep->fid.fid.fclass = FI_CLASS_EP;
	ep->fid.fid.context = context;
	ep->fid.fid.ops = &ep_fid_ops;
	ep->fid.ops = &ep_ops;
	ep->fid.cm = &cm_ops;
	ep->fid.msg = &sim_msg_ops;
	ep->fid.rma = &sim_rma_ops;
	ep->domain = domain;
	fab_list_construct(&ep->paths);
	ep->random =
		domain->config.seed ^ ((uint64_t) domain->nic->index << 32 |
				       domain->endpoint_count++);
	domain->child_count++;
	*out = &ep->fid;
	return 0;
}
