/* Address vector: the paths from a domain's endpoints to others. */
#ifndef SIM_AV_H
#define SIM_AV_H

#include "domain.h"

/* One way, from the domain that inserted an address to the endpoint there.
 * P1 `target` is written with the wire's mutex and `lock` held, and read with
 *    either. Who lands an operation holds `lock` meanwhile, so that the target,
 *    its CQ and its keys stay what they are: the reader's side of a lock whose
 *    writer takes those of all paths.
 * P2 the rest is the inserting domain's thread's, but for `link`. */
struct sim_path {
	_Alignas(SIM_CACHE_LINE) struct sim_lock lock;
	uint32_t user_count;   /* operations out that name it */
	uint8_t removed;       /* from the AV; freed with its last user */
	struct sim_ep *target; /* borrowed until it closes; NULL: nobody */
	struct sim_nic *nic;   /* the target's; stays after it closed */
	struct fab_link link;  /* in the target's paths; the wire's mutex */
	struct sim_address address;
};

struct sim_av {
	struct fid_av fid;
	struct sim_domain *domain; /* shared; counts us */
	uint32_t endpoint_count;   /* bound */
	struct fab_link endpoints; /* struct sim_ep */
	struct sim_path **paths;   /* owned; by fi_addr, NULL: free */
	uint32_t count;            /* of places */
	uint32_t capacity;
};

int sim_av_open(struct fid_domain *domain, struct fi_av_attr *attr,
		struct fid_av **av, void *context);

/* NULL: no such address. [domain] */
static inline struct sim_path *sim_av_path(const struct sim_av *av,
					   fi_addr_t address)
{
	return address < av->count ? av->paths[address] : NULL;
}

/* An operation that named the path is over. [domain] */
static inline void sim_path_release(struct sim_path *path)
{
	if (--path->user_count == 0 && path->removed)
		free(path);
}

#endif
