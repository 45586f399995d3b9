#include "av.h"

#include "ep.h"

#include <rdma/fi_errno.h>
#include <stdio.h>

static int av_is_address(const struct sim_address *address)
{
	return !memcmp(address->magic, SIM_ADDRESS_MAGIC,
		       sizeof(address->magic));
}

static int av_place(struct sim_av *av, fi_addr_t *place)
{
	struct sim_path **paths;
	uint32_t capacity = av->capacity ? 2 * av->capacity : 16;

	for (uint32_t i = 0; i < av->count; i++) {
		if (!av->paths[i]) {
			*place = i;
			return 0;
		}
	}
	if (av->count == av->capacity) {
		paths = realloc(av->paths, sizeof(paths[0]) * capacity);
		if (!paths)
			return -FI_ENOMEM;
		av->paths = paths;
		av->capacity = capacity;
	}
	*place = av->count;
	av->paths[av->count++] = NULL;
	return 0;
}

static int av_insert_one(struct sim_av *av, const struct sim_address *address,
			 fi_addr_t *place)
{
	struct sim_path *path;
	struct sim_wire *wire;
	int ret;

	if (!av_is_address(address))
		return -FI_EINVAL;
	ret = av_place(av, place);
	if (ret)
		return ret;
	path = sim_alloc(sizeof(*path));
	if (!path)
		return -FI_ENOMEM;
	path->address = *address;
	wire = sim_wire_enter(&ret);
	path->target = sim_wire_endpoint(wire, address);
	if (path->target) {
		path->nic = path->target->domain->nic;
		fab_list_append(&path->target->paths, &path->link);
	}
	sim_wire_leave(wire);
	av->paths[*place] = path;
	return 0;
}

static int av_insert(struct fid_av *fid, const void *addresses, size_t count,
		     fi_addr_t *places, uint64_t flags, void *context)
{
	struct sim_av *av = FAB_ENTRY(fid, struct sim_av, fid);
	const unsigned char *at = addresses;
	int inserted = 0;

	(void) context; /* FI_EVENT is not offered */
	if (flags & ~FI_MORE)
		return -FI_EBADFLAGS;
	for (size_t i = 0; i < count; i++, at += sizeof(struct sim_address)) {
		struct sim_address address;
		fi_addr_t place = FI_ADDR_NOTAVAIL;

		memcpy(&address, at, sizeof(address));
		if (!av_insert_one(av, &address, &place))
			inserted++;
		else
			place = FI_ADDR_NOTAVAIL;
		if (places)
			places[i] = place;
	}
	return inserted;
}

/* Nothing lands by this path from now on. */
static void path_cut(struct sim_path *path)
{
	struct sim_wire *wire;
	int ret;

	wire = sim_wire_enter(&ret);
	sim_lock_take(&path->lock);
	path->target = NULL;
	sim_lock_give(&path->lock);
	if (fab_link_listed(&path->link))
		fab_list_remove(&path->link);
	sim_wire_leave(wire);
	path->removed = 1;
}

static void av_remove_one(struct sim_av *av, fi_addr_t place)
{
	struct sim_path *path = av->paths[place];
	struct fab_link *link;

	av->paths[place] = NULL;
	path_cut(path);
	path->user_count++; /* so that flushing does not free it */
	for (link = av->endpoints.next; link != &av->endpoints;
	     link = link->next)
		sim_ep_flush(FAB_ENTRY(link, struct sim_ep, av_link), path);
	sim_path_release(path);
}

static int av_remove(struct fid_av *fid, fi_addr_t *places, size_t count,
		     uint64_t flags)
{
	struct sim_av *av = FAB_ENTRY(fid, struct sim_av, fid);

	if (flags)
		return -FI_EBADFLAGS;
	for (size_t i = 0; i < count; i++) {
		if (!sim_av_path(av, places[i]))
			return -FI_EINVAL;
		av_remove_one(av, places[i]);
	}
	return 0;
}

static int av_lookup(struct fid_av *fid, fi_addr_t place, void *address,
		     size_t *length)
{
	const struct sim_av *av = FAB_ENTRY(fid, const struct sim_av, fid);
	const struct sim_path *path = sim_av_path(av, place);
	size_t room = *length;

	if (!path)
		return -FI_EINVAL;
	*length = sizeof(path->address);
	memcpy(address, &path->address, room < *length ? room : *length);
	return 0;
}

static const char *av_straddr(struct fid_av *fid, const void *address,
			      char *buffer, size_t *length)
{
	struct sim_address at;
	int needed;

	(void) fid;
	memcpy(&at, address, sizeof(at));
	needed = snprintf(buffer, *length, "fi_sim://%llx/sim%u/%llu",
			  (unsigned long long) at.process, at.nic,
			  (unsigned long long) at.endpoint);
	*length = (size_t) needed + 1;
	return buffer;
}

static int av_insertsvc(struct fid_av *fid, const char *node,
			const char *service, fi_addr_t *place, uint64_t flags,
			void *context)
{
	(void) fid;
	(void) node;
	(void) service;
	(void) place;
	(void) flags;
	(void) context;
	return -FI_ENOSYS;
}

static int av_insertsym(struct fid_av *fid, const char *node, size_t nodes,
			const char *service, size_t services, fi_addr_t *place,
			uint64_t flags, void *context)
{
	(void) fid;
	(void) node;
	(void) nodes;
	(void) service;
	(void) services;
	(void) place;
	(void) flags;
	(void) context;
	return -FI_ENOSYS;
}

static struct fi_ops_av av_ops = {
	.size = sizeof(struct fi_ops_av),
	.insert = av_insert,
	.insertsvc = av_insertsvc,
	.insertsym = av_insertsym,
	.remove = av_remove,
	.lookup = av_lookup,
	.straddr = av_straddr,
};

static int av_close(struct fid *fid)
{
	struct sim_av *av = FAB_ENTRY(fid, struct sim_av, fid.fid);

	if (av->endpoint_count)
		return -FI_EBUSY;
	for (uint32_t i = 0; i < av->count; i++) {
		if (av->paths[i])
			av_remove_one(av, i);
	}
	av->domain->child_count--;
	free(av->paths);
	free(av);
	return 0;
}

static int av_bind(struct fid *fid, struct fid *other, uint64_t flags)
{
	(void) fid;
	(void) other;
	(void) flags;
	return -FI_ENOSYS;
}

static int av_control(struct fid *fid, int command, void *arg)
{
	(void) fid;
	(void) command;
	(void) arg;
	return -FI_ENOSYS;
}

static struct fi_ops av_fid_ops = {
	.size = sizeof(struct fi_ops),
	.close = av_close,
	.bind = av_bind,
	.control = av_control,
};

int sim_av_open(struct fid_domain *fid, struct fi_av_attr *attr,
		struct fid_av **out, void *context)
{
	struct sim_domain *domain = FAB_ENTRY(fid, struct sim_domain, fid);
	struct sim_av *av;

	if (attr->name || attr->map_addr || attr->rx_ctx_bits)
		return -FI_ENOSYS;
	if (attr->flags)
		return -FI_EBADFLAGS;
	av = calloc(1, sizeof(*av));
	if (!av)
		return -FI_ENOMEM;
	av->fid.fid.fclass = FI_CLASS_AV;
	av->fid.fid.context = context;
	av->fid.fid.ops = &av_fid_ops;
	av->fid.ops = &av_ops;
	av->domain = domain;
	/* An index either way: FI_AV_MAP promises no other. */
	if (attr->type == FI_AV_UNSPEC)
		attr->type = FI_AV_TABLE;
	fab_list_construct(&av->endpoints);
	domain->child_count++;
	*out = &av->fid;
	return 0;
}
