/* Memory regions: provider keys, checked when an operation lands. */
#include "av.h"
#include "domain.h"
#include "ep.h"

#include <rdma/fi_errno.h>
#include <sys/resource.h>

#define FIRST_ENTRIES 64u

struct sim_mr {
	struct fid_mr fid;
	struct sim_domain *domain; /* shared; counts us */
};

/* D1: nobody lands on the domain until mr_admit. The wire's mutex is held. */
static void mr_exclude(struct sim_wire *wire, const struct sim_domain *domain,
		       int exclude)
{
	struct fab_link *at, *link;

	for (at = wire->endpoints.next; at != &wire->endpoints; at = at->next) {
		struct sim_ep *ep = FAB_ENTRY(at, struct sim_ep, link);

		if (ep->domain != domain)
			continue;
		for (link = ep->paths.next; link != &ep->paths;
		     link = link->next) {
			struct sim_path *path =
				FAB_ENTRY(link, struct sim_path, link);

			if (exclude)
				sim_lock_take(&path->lock);
			else
				sim_lock_give(&path->lock);
		}
	}
}

/* Double the table. D1 holds. */
static int mr_grow(struct sim_domain *domain)
{
	uint32_t count = domain->entry_count;
	uint32_t more = count ? 2 * count : FIRST_ENTRIES;
	struct sim_mr_entry *entries;

	if (count == SIM_KEY_LIMIT)
		return -FI_ENOMEM;
	entries = realloc(domain->entries, sizeof(*entries) * more);
	if (!entries)
		return -FI_ENOMEM;
	for (uint32_t i = count; i < more; i++)
		entries[i] = (struct sim_mr_entry) {
			.next = i + 1 < more ? i + 1 : SIM_KEY_LIMIT,
		};
	domain->entries = entries;
	domain->entry_count = more;
	domain->free_entry = count;
	return 0;
}

/* As the kernel does for a NIC, for which it keeps the pages in place. The
 * wire's mutex is held. */
static int mr_lock(struct sim_wire *wire, uint64_t bytes)
{
	struct rlimit limit;

	if (wire->config.lock && !getrlimit(RLIMIT_MEMLOCK, &limit) &&
	    limit.rlim_cur != RLIM_INFINITY &&
	    wire->locked_bytes + bytes > limit.rlim_cur)
		return -FI_ENOMEM;
	wire->locked_bytes += bytes;
	return 0;
}

/* D1 holds. */
static int mr_enter(struct sim_domain *domain, const void *memory,
		    size_t length, uint64_t access, uint32_t *key)
{
	struct sim_mr_entry *entry;
	uint32_t place;
	int ret;

	if (domain->free_entry == SIM_KEY_LIMIT) {
		ret = mr_grow(domain);
		if (ret)
			return ret;
	}
	place = domain->free_entry;
	entry = &domain->entries[place];
	domain->free_entry = entry->next;
	entry->generation = entry->generation % 0x3fff + 1;
	entry->base = (uint64_t) (uintptr_t) memory;
	entry->length = length;
	entry->access = access;
	entry->key = entry->generation << SIM_KEY_PLACE_BITS | place;
	*key = entry->key;
	return 0;
}

static int mr_close(struct fid *fid)
{
	struct sim_mr *mr = FAB_ENTRY(fid, struct sim_mr, fid.fid);
	struct sim_domain *domain = mr->domain;
	uint32_t place = (uint32_t) mr->fid.key & (SIM_KEY_LIMIT - 1);
	struct sim_wire *wire;
	int ret;

	wire = sim_wire_enter(&ret);
	mr_exclude(wire, domain, 1);
	wire->locked_bytes -= domain->entries[place].length;
	domain->entries[place].key = 0;
	domain->entries[place].next = domain->free_entry;
	domain->free_entry = place;
	mr_exclude(wire, domain, 0);
	sim_wire_leave(wire);
	domain->child_count--;
	free(mr);
	return 0;
}

static int mr_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void) fid;
	(void) other;
	(void) flags;
	return -FI_ENOSYS; /* no FI_MR_ENDPOINT, no FI_RMA_EVENT */
}

static int mr_control(struct fid *fid, int command, void *arg)
{
	(void) fid;
	(void) arg;
	return command == FI_ENABLE ? 0 : -FI_ENOSYS;
}

static int mr_ops_open(struct fid *fid, const char *name, uint64_t flags,
		       void **ops, void *context)
{
	(void) fid;
	(void) name;
	(void) flags;
	(void) ops;
	(void) context;
	return -FI_ENOSYS;
}

static struct fi_ops mr_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = mr_close,
	.bind = mr_bind,
	.control = mr_control,
	.ops_open = mr_ops_open,
};

static int mr_open(struct sim_domain *domain, const struct iovec *iov,
		   size_t count, uint64_t access, uint64_t flags, void *context,
		   struct fid_mr **out)
{
	const uint64_t known = FI_SEND | FI_RECV | FI_READ | FI_WRITE |
			       FI_REMOTE_READ | FI_REMOTE_WRITE;
	struct sim_wire *wire;
	struct sim_mr *mr;
	uint32_t key = 0;
	int ret;

	if (flags)
		return -FI_EBADFLAGS;
	if (count != 1 || !iov->iov_base || !iov->iov_len || access & ~known)
		return -FI_EINVAL;
	mr = calloc(1, sizeof(*mr));
	if (!mr)
		return -FI_ENOMEM;
	wire = sim_wire_enter(&ret);
	mr_exclude(wire, domain, 1);
	ret = mr_lock(wire, iov->iov_len);
	if (!ret) {
		ret = mr_enter(domain, iov->iov_base, iov->iov_len, access,
			       &key);
		if (ret)
			wire->locked_bytes -= iov->iov_len;
	}
	mr_exclude(wire, domain, 0);
	sim_wire_leave(wire);
	if (ret) {
		free(mr);
		return ret;
	}
	mr->domain = domain;
	mr->fid.fid.fclass = FI_CLASS_MR;
	mr->fid.fid.context = context;
	mr->fid.fid.ops = &mr_fid_ops;
	mr->fid.mem_desc = sim_mr_desc(key);
	mr->fid.key = key;
	domain->child_count++;
	*out = &mr->fid;
	return 0;
}

static struct sim_domain *mr_domain(struct fid *fid)
{
	return fid->fclass == FI_CLASS_DOMAIN ?
		       FAB_ENTRY(fid, struct sim_domain, fid.fid) :
		       NULL;
}

static int mr_reg(struct fid *fid, const void *memory, size_t length,
		  uint64_t access, uint64_t offset, uint64_t requested_key,
		  uint64_t flags, struct fid_mr **mr, void *context)
{
	struct iovec iov = {(void *) (uintptr_t) memory, length};

	(void) offset;
	(void) requested_key; /* FI_MR_PROV_KEY: ours to choose */
	return mr_domain(fid) ? mr_open(mr_domain(fid), &iov, 1, access, flags,
					context, mr) :
				-FI_EINVAL;
}

static int mr_regv(struct fid *fid, const struct iovec *iov, size_t count,
		   uint64_t access, uint64_t offset, uint64_t requested_key,
		   uint64_t flags, struct fid_mr **mr, void *context)
{
	(void) offset;
	(void) requested_key;
	return mr_domain(fid) ? mr_open(mr_domain(fid), iov, count, access,
					flags, context, mr) :
				-FI_EINVAL;
}

static int mr_regattr(struct fid *fid, const struct fi_mr_attr *attr,
		      uint64_t flags, struct fid_mr **mr)
{
	if (attr->iface != FI_HMEM_SYSTEM)
		return -FI_EOPNOTSUPP;
	return mr_domain(fid) ?
		       mr_open(mr_domain(fid), attr->mr_iov, attr->iov_count,
			       attr->access, flags, attr->context, mr) :
		       -FI_EINVAL;
}

struct fi_ops_mr sim_mr_ops = {
	.size = sizeof(struct fi_ops_mr),
	.reg = mr_reg,
	.regv = mr_regv,
	.regattr = mr_regattr,
};
