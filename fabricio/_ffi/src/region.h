/* A region of the loop's: memory registered with the lanes of some workers. */
#ifndef FAB_REGION_H
#define FAB_REGION_H

#include "fabricio.h"
#include "list.h"

#include <stdint.h>

struct fab_registration;

/* Everything here is the loop's. */
struct fab_region {
	struct fab_link link; /* in engine->regions */
	uint64_t token;
	uint64_t workers; /* bit mask */
	uint32_t opening; /* parts that have not answered yet */
	uint32_t closing; /* parts told to close that have not answered yet */
	int32_t status;
	struct fab_error *error; /* owned: of the first failure */
	/* One a worker; the worker's until it says DEREGISTERED; NULL: none. */
	struct fab_registration *parts[FAB_MAX_WORKERS];
};

/* Take a worker's answer. 1 if the loop shall have it, made out for the whole
 * region. [loop] */
int fab_region_gather(struct fab_completion *completion);

/* Those that were never deregistered, after the workers ended. [loop] */
void fab_region_free_list(struct fab_link *list);

#endif
