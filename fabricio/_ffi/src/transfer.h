/* A transfer of the loop's: one part on each path that it takes.
 *
 * Y1 the loop is told DONE once, when every part is done; the first failure
 *    stops the others. QUIET follows when every part is quiet, if DONE was not.
 * Y2 it is freed by the loop's release, which comes after that.
 * Y3 a part whose path failed is replaced by one on another path, which has its
 *    chunks. Where none can have them, and the peer waits for a notification, by
 *    one that only tells it of the failure. */
#ifndef FAB_TRANSFER_H
#define FAB_TRANSFER_H

#include "fabricio.h"
#include "list.h"
#include "supply.h"

struct fab_engine;
struct fab_part;

/* The loop's, but for what supply.h says. */
struct fab_transfer {
	struct fab_link link; /* in engine->transfers */
	struct fab_supply supply;
	uint64_t token;
	uint64_t sequence;
	struct fab_region *region; /* open while a part is not quiet */
	struct fab_remote remote;  /* keys lie behind the parts */
	uint32_t route;
	uint32_t flags;
	uint32_t cancelled;
	uint64_t counted; /* by the peer, over all parts */
	int32_t status;
	struct fab_error *error; /* owned: of the first failure */
	uint32_t undone;         /* parts that are not done */
	uint32_t unquiet;        /* parts that are not quiet */
	uint32_t part_count;
	/* Each is its worker's until released. Keys and indices lie behind. */
	struct fab_transfer_part {
		struct fab_part *part;
		uint32_t path;
		uint32_t worker;
	} parts[];
};

/* Take a part's DONE or QUIET. 1 if the loop shall have it, made out for the
 * whole transfer. [loop] */
int fab_transfer_gather(struct fab_engine *engine,
			struct fab_completion *completion);

/* Those that were never released, after the workers ended. [loop] */
void fab_transfer_free_list(struct fab_link *list);

#endif
