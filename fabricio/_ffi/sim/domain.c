#include "domain.h"

#include "av.h"
#include "cq.h"
#include "ep.h"

#include <rdma/fi_errno.h>

static int domain_close(struct fid *fid)
{
	struct sim_domain *domain = FAB_ENTRY(fid, struct sim_domain, fid.fid);
	struct sim_wire *wire;
	int ret;

	if (domain->child_count)
		return -FI_EBUSY;
	wire = sim_wire_enter(&ret);
	fab_list_remove(&domain->link);
	wire->domain_count--;
	for (int i = 0; i < SIM_COUNTS; i++)
		sim_count(&domain->nic->closed, (enum sim_count) i,
			  atomic_load_explicit(&domain->counters.value[i],
					       memory_order_relaxed));
	sim_wire_leave(wire);
	atomic_fetch_sub_explicit(&domain->fabric->domain_count, 1,
				  memory_order_acq_rel);
	free(domain->entries);
	free(domain);
	return 0;
}

static int domain_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void) fid;
	(void) other;
	(void) flags;
	return -FI_ENOSYS;
}

static int domain_control(struct fid *fid, int command, void *arg)
{
	(void) fid;
	(void) command;
	(void) arg;
	return -FI_ENOSYS;
}

static int domain_ops_open(struct fid *fid, const char *name, uint64_t flags,
			   void **ops, void *context)
{
	(void) fid;
	(void) name;
	(void) flags;
	(void) ops;
	(void) context;
	return -FI_ENOSYS;
}

static struct fi_ops domain_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = domain_close,
	.bind = domain_bind,
	.control = domain_control,
	.ops_open = domain_ops_open,
};

static int no_scalable_ep(struct fid_domain *domain, struct fi_info *info,
			  struct fid_ep **ep, void *context)
{
	(void) domain;
	(void) info;
	(void) ep;
	(void) context;
	return -FI_ENOSYS;
}

static int no_cntr(struct fid_domain *domain, struct fi_cntr_attr *attr,
		   struct fid_cntr **cntr, void *context)
{
	(void) domain;
	(void) attr;
	(void) cntr;
	(void) context;
	return -FI_ENOSYS;
}

static int no_poll(struct fid_domain *domain, struct fi_poll_attr *attr,
		   struct fid_poll **poll)
{
	(void) domain;
	(void) attr;
	(void) poll;
	return -FI_ENOSYS;
}

static int no_stx(struct fid_domain *domain, struct fi_tx_attr *attr,
		  struct fid_stx **stx, void *context)
{
	(void) domain;
	(void) attr;
	(void) stx;
	(void) context;
	return -FI_ENOSYS;
}

static int no_srx(struct fid_domain *domain, struct fi_rx_attr *attr,
		  struct fid_ep **ep, void *context)
{
	(void) domain;
	(void) attr;
	(void) ep;
	(void) context;
	return -FI_ENOSYS;
}

static int no_atomic(struct fid_domain *domain, enum fi_datatype datatype,
		     enum fi_op op, struct fi_atomic_attr *attr, uint64_t flags)
{
	(void) domain;
	(void) datatype;
	(void) op;
	(void) attr;
	(void) flags;
	return -FI_EOPNOTSUPP;
}

static struct fi_ops_domain domain_ops = {
	.size = sizeof(struct fi_ops_domain),
	.av_open = sim_av_open,
	.cq_open = sim_cq_open,
	.endpoint = sim_ep_open,
	.scalable_ep = no_scalable_ep,
	.cntr_open = no_cntr,
	.poll_open = no_poll,
	.stx_ctx = no_stx,
	.srx_ctx = no_srx,
	.query_atomic = no_atomic,
};

static struct sim_nic *domain_nic(struct sim_wire *wire, const char *name)
{
	for (uint32_t i = 0; i < wire->config.nic_count; i++) {
		if (!strcmp(wire->nics[i].domain, name))
			return &wire->nics[i];
	}
	return NULL;
}

int sim_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		    struct fid_domain **out, void *context)
{
	struct sim_domain *domain;
	struct sim_wire *wire;
	int ret;

	if (!info->domain_attr || !info->domain_attr->name)
		return -FI_EINVAL;
	domain = sim_alloc(sizeof(*domain));
	if (!domain)
		return -FI_ENOMEM;
	domain->fid.fid.fclass = FI_CLASS_DOMAIN;
	domain->fid.fid.context = context;
	domain->fid.fid.ops = &domain_fid_ops;
	domain->fid.ops = &domain_ops;
	domain->fid.mr = &sim_mr_ops;
	domain->fabric = FAB_ENTRY(fabric, struct sim_fabric, fid);
	domain->free_entry = SIM_KEY_LIMIT;
	wire = sim_wire_enter(&ret);
	if (!ret) {
		domain->nic = domain_nic(wire, info->domain_attr->name);
		ret = domain->nic ? 0 : -FI_ENODEV;
	}
	if (!ret) {
		domain->config = wire->config;
		domain->config.pci = NULL;
		wire->domain_count++;
		fab_list_append(&wire->domains, &domain->link);
	}
	sim_wire_leave(wire);
	if (ret) {
		free(domain);
		return ret;
	}
	atomic_fetch_add_explicit(&domain->fabric->domain_count, 1,
				  memory_order_acq_rel);
	*out = &domain->fid;
	return 0;
}
