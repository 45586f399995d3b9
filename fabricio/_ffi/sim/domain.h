/* A domain on a simulated NIC, with the table of its memory regions. */
#ifndef SIM_DOMAIN_H
#define SIM_DOMAIN_H

#include "wire.h"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

struct sim_fabric {
	struct fid_fabric fid;
	_Atomic uint32_t domain_count; /* writer: any, one RMW each */
};

/* A key is 14 bits of generation over 18 bits of place, and never 0. */
#define SIM_KEY_PLACE_BITS 18
#define SIM_KEY_LIMIT      (1u << SIM_KEY_PLACE_BITS)

struct sim_mr_entry {
	uint64_t base;
	uint64_t length;
	uint64_t access;
	uint32_t key; /* 0: free */
	uint32_t generation;
	uint32_t
		next; /* free: place of the next free one, SIM_KEY_LIMIT: none */
};

/* D1 entries are changed by the domain's thread alone, with the wire's mutex
 *    and the locks of all paths to the domain; so that thread may read them at
 *    any time, and others while they hold a path.
 * D2 counts of children are the domain's thread's. */
struct sim_domain {
	struct fid_domain fid;
	struct fab_link link;         /* in the wire's domains; its mutex */
	struct sim_fabric *fabric;    /* shared; counts us */
	struct sim_nic *nic;          /* borrowed from the wire (W3) */
	struct sim_config config;     /* copy; pci is NULL */
	uint32_t child_count;         /* AVs, CQs, endpoints, regions */
	uint32_t endpoint_count;      /* ever: seeds their orders */
	struct sim_mr_entry *entries; /* owned */
	uint32_t entry_count;
	uint32_t free_entry;          /* SIM_KEY_LIMIT: none */
	struct sim_counters counters; /* writer: the domain's thread */
};

int sim_domain_open(struct fid_fabric *fabric, struct fi_info *info,
		    struct fid_domain **domain, void *context);

extern struct fi_ops_mr sim_mr_ops;

/* What the key allows: NULL unless [address, address + length) lies within its
 * region and it grants all of `access`. D1. */
static inline const struct sim_mr_entry *
sim_mr_find(const struct sim_domain *domain, uint64_t key, uint64_t address,
	    uint64_t length, uint64_t access)
{
	uint32_t place = (uint32_t) key & (SIM_KEY_LIMIT - 1);
	const struct sim_mr_entry *entry;

	if (place >= domain->entry_count)
		return NULL;
	entry = &domain->entries[place];
	if (!key || entry->key != key || (entry->access & access) != access ||
	    address < entry->base || length > entry->length ||
	    address - entry->base > entry->length - length)
		return NULL;
	return entry;
}

/* A local descriptor is the region's key: it may outlive the region. */
static inline void *sim_mr_desc(uint32_t key)
{
	return (void *) (uintptr_t) key;
}

#endif
