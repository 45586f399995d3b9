/* A memory region, registered with every lane of the worker. */
#ifndef FAB_REGISTRATION_H
#define FAB_REGISTRATION_H

#include "fabricio.h"
#include "list.h"

#include <rdma/fi_domain.h>

struct fab_worker;

struct fab_registration {
	struct fab_link link; /* in worker->regions while registered */
	uint64_t token;
	uint64_t address; /* borrowed memory of the caller */
	uint64_t bytes;
	uint64_t base; /* what peers call its first byte; worker writes */
	uint64_t key;  /* asked for */
	uint32_t access;
	uint32_t lane_count;
	uint32_t transfers; /* that use it; worker only */
	uint32_t closing; /* deregistration waits for transfers; worker only */
	struct fab_registration_lane {
		struct fid_mr *mr; /* owned */
		void *desc;        /* borrowed from mr */
		uint64_t key;
	} lanes[];
};

/* [worker] */
void fab_registration_open(struct fab_worker *worker,
			   struct fab_registration *registration);
void fab_registration_close(struct fab_worker *worker,
			    struct fab_registration *registration);
/* Close its MRs; the struct stays. [worker] */
void fab_registration_unregister(struct fab_registration *registration);
/* 0 if some open region has the key and grants the access, -FI_EACCES if it
 * does not grant it, -FI_ENOKEY if there is none. [worker] */
int fab_registration_grants(const struct fab_worker *worker, uint64_t key,
			    uint32_t access);
/* A transfer begins or ends to use it; the last one may close it. [worker] */
void fab_registration_hold(struct fab_registration *registration);
void fab_registration_drop(struct fab_worker *worker,
			   struct fab_registration *registration);

#endif
