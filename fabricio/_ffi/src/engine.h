/* Engine: the loop's side. Commands go down, completions come up.
 *
 * E1 only the thread that runs the loop calls functions marked [loop].
 * E2 commands to one worker arrive in order, also those that met a full ring.
 * E3 nothing is dropped: a full ring makes either side keep the rest. */
#ifndef FAB_ENGINE_H
#define FAB_ENGINE_H

#include "command.h"
#include "fabricio.h"
#include "list.h"
#include "queue.h"
#include "route.h"
#include "wakeup.h"
#include "worker.h"

struct fab_engine {
	struct fab_wakeup doorbell; /* workers ring, loop clears */
	struct fab_worker *workers; /* owned array */
	struct fab_queue *backlogs; /* owned, one a worker; the loop's */
	struct fab_frame *lent;     /* owned: reaped last; the loop's */
	uint32_t worker_count;
	uint32_t started;           /* threads to join */
	uint32_t stopped;           /* STOP was sent */
	struct fab_options options; /* strings owned, no plans */
	/* The loop's. */
	struct fab_routes routes;
	struct fab_link regions;   /* struct fab_region, owned */
	struct fab_link transfers; /* struct fab_transfer, owned */
};

/* Hand a command to a worker. 0, or -FI_ENOMEM with nothing done. [loop] */
int fab_engine_submit(struct fab_engine *engine, uint32_t worker,
		      const struct fab_command *command);

/* Make sure of room for `count` commands to each worker in the mask, so that
 * what needs several happens whole or not at all. 0 or -FI_ENOMEM. [loop] */
int fab_engine_reserve(struct fab_engine *engine, uint64_t workers,
		       uint32_t count);
/* Submit a command for which there is room. Takes `object` over. [loop] */
void fab_engine_command(struct fab_engine *engine, uint32_t worker,
			uint32_t kind, uint32_t peer, void *object);

#endif
