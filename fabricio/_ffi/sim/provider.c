/* The entry point of the plugin, and the fabric object. */
#include "cq.h"
#include "domain.h"
#include "info.h"

#include <dlfcn.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>

#define PROVIDER_VERSION FI_VERSION(0, 1)
#define LIBFABRIC        "libfabric.so.1"

static int fabric_close(struct fid *fid)
{
	struct sim_fabric *fabric = FAB_ENTRY(fid, struct sim_fabric, fid.fid);

	if (atomic_load_explicit(&fabric->domain_count, memory_order_acquire))
		return -FI_EBUSY;
	free(fabric);
	return 0;
}

static int fabric_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void) fid;
	(void) other;
	(void) flags;
	return -FI_ENOSYS;
}

static int fabric_control(struct fid *fid, int command, void *arg)
{
	(void) fid;
	(void) command;
	(void) arg;
	return -FI_ENOSYS;
}

static int fabric_ops_open(struct fid *fid, const char *name, uint64_t flags,
			   void **ops, void *context)
{
	(void) fid;
	(void) name;
	(void) flags;
	(void) ops;
	(void) context;
	return -FI_ENOSYS;
}

static struct fi_ops fabric_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = fabric_close,
	.bind = fabric_bind,
	.control = fabric_control,
	.ops_open = fabric_ops_open,
};

static int no_passive_ep(struct fid_fabric *fabric, struct fi_info *info,
			 struct fid_pep **pep, void *context)
{
	(void) fabric;
	(void) info;
	(void) pep;
	(void) context;
	return -FI_ENOSYS;
}

static int no_eq(struct fid_fabric *fabric, struct fi_eq_attr *attr,
		 struct fid_eq **eq, void *context)
{
	(void) fabric;
	(void) attr;
	(void) eq;
	(void) context;
	return -FI_ENOSYS;
}

static int no_wait(struct fid_fabric *fabric, struct fi_wait_attr *attr,
		   struct fid_wait **wait)
{
	(void) fabric;
	(void) attr;
	(void) wait;
	return -FI_ENOSYS;
}

static int fabric_trywait(struct fid_fabric *fabric, struct fid **fids,
			  int count)
{
	(void) fabric;
	for (int i = 0; i < count; i++) {
		struct sim_cq *cq;
		int ret;

		if (fids[i]->fclass != FI_CLASS_CQ)
			return -FI_EINVAL;
		cq = FAB_ENTRY(fids[i], struct sim_cq, fid.fid);
		if (cq->wait_fd < 0)
			return -FI_EINVAL;
		ret = sim_cq_trywait(cq);
		if (ret)
			return ret;
	}
	return 0;
}

static struct fi_ops_fabric fabric_ops = {
	.size = sizeof(struct fi_ops_fabric),
	.domain = sim_domain_open,
	.passive_ep = no_passive_ep,
	.eq_open = no_eq,
	.wait_open = no_wait,
	.trywait = fabric_trywait,
};

static int provider_fabric(struct fi_fabric_attr *attr, struct fid_fabric **out,
			   void *context)
{
	struct sim_fabric *fabric;

	if (!attr->name || strcmp(attr->name, SIM_FABRIC))
		return -FI_ENODATA;
	fabric = calloc(1, sizeof(*fabric));
	if (!fabric)
		return -FI_ENOMEM;
	fabric->fid.fid.fclass = FI_CLASS_FABRIC;
	fabric->fid.fid.context = context;
	fabric->fid.fid.ops = &fabric_fid_ops;
	fabric->fid.ops = &fabric_ops;
	*out = &fabric->fid;
	return 0;
}

static struct fi_provider provider = {
	.version = PROVIDER_VERSION,
	.name = SIM_PROVIDER,
	.getinfo = sim_getinfo,
	.fabric = provider_fabric,
	.cleanup = sim_wire_cleanup,
};

/* Filled by fi_prov_ini, which libfabric calls once, before anything else. */
static struct sim_libfabric libfabric;

const struct sim_libfabric *sim_libfabric(void)
{
	return &libfabric;
}

/* dlsym gives each symbol's newest version, which has the layout that libfabric
 * itself uses. Linking would bind to that of the headers, which converts. */
static int libfabric_find(void)
{
	void *handle = dlopen(LIBFABRIC, RTLD_LAZY | RTLD_NOLOAD);
	void *at = handle ? handle : RTLD_DEFAULT;

	/* POSIX lets a function's address pass through void *. */
	*(void **) &libfabric.dupinfo = dlsym(at, "fi_dupinfo");
	*(void **) &libfabric.freeinfo = dlsym(at, "fi_freeinfo");
	*(void **) &libfabric.version = dlsym(at, "fi_version");
	if (handle)
		dlclose(handle); /* whoever called us keeps it */
	return libfabric.dupinfo && libfabric.freeinfo && libfabric.version ?
		       0 :
		       -FI_ENOSYS;
}

__attribute__((visibility("default"))) struct fi_provider *fi_prov_ini(void);

struct fi_provider *fi_prov_ini(void)
{
	if (libfabric_find())
		return NULL;
	/* What was added since 1.17 is not offered, so any version will do. */
	provider.fi_version = libfabric.version();
	return &provider;
}
